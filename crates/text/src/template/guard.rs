//! Rewriting a template so that everything of unbounded cost passes through the budget.
//!
//! A parsed template is rebuilt with calls of functions that no template can name:
//! - [`SETTLE`] around what makes new values: `a + b`, filters, calls, list and mapping literals;
//! - [`COMPARE`] around operands of comparisons and lookups, whose cost depends on their size;
//! - [`CONCAT`], [`MULTIPLY`] and [`SLICE`] in place of `a ~ b`, `a * b` and `a[i:j:k]`;
//! - [`STORE`] around what is stored in a namespace.
//!
//! Literal text is turned into an expression, so that the formatter sees it and can pay for it. This also keeps the
//! compiler from folding large constants. Tags that load other templates are refused, as there are none.

use minijinja::Value;
use minijinja::machinery::ast::{self, BinOpKind, CallArg, Expr, Spanned, Stmt};
use minijinja::machinery::{Span, Token, WhitespaceConfig, tokenize};

use super::TemplateError;

pub(super) const SETTLE: &str = "<settle>";
pub(super) const COMPARE: &str = "<compare>";
pub(super) const CONCAT: &str = "<concat>";
pub(super) const MULTIPLY: &str = "<multiply>";
pub(super) const SLICE: &str = "<slice>";
pub(super) const STORE: &str = "<store>";

/// How many tokens one tag may have: a long chain of operators is a deep tree.
const MAX_TOKENS: usize = 1000;

/// How deeply tags may be nested; each `elif` counts as a level until its `endif`.
const MAX_TAGS: usize = 60;

/// Refuses templates that would need much stack to parse and compile.
pub(super) fn check_depth(source: &str, whitespace: WhitespaceConfig) -> Result<(), TemplateError> {
    let mut tokens = 0;
    let mut open: Vec<usize> = Vec::new();
    let mut tag: Option<&str> = None;
    let mut tag_assigns = false;
    for token in tokenize(source, false, Default::default(), whitespace) {
        let (token, span) = token.map_err(|error| TemplateError::syntax(&error))?;
        tokens += 1;
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => {
                (tokens, tag, tag_assigns) = (0, None, false);
            }
            Token::Ident(name) if tokens == 1 => tag = Some(name),
            Token::Assign => tag_assigns = true,
            Token::BlockEnd => match tag {
                Some("if" | "for" | "macro" | "call" | "filter" | "with" | "autoescape") => open.push(1),
                Some("set") if !tag_assigns => open.push(1),
                Some("elif") => open.last_mut().into_iter().for_each(|levels| *levels += 1),
                Some(name) if name.starts_with("end") => {
                    open.pop();
                }
                _ => {}
            },
            _ => {}
        }
        if tokens > MAX_TOKENS || open.iter().sum::<usize>() > MAX_TAGS {
            return Err(TemplateError::TooComplex(span.start_line as usize));
        }
    }
    Ok(())
}

fn unsupported<T>(tag: &'static str, span: Span) -> Result<T, TemplateError> {
    Err(TemplateError::Unsupported { tag, line: span.start_line as usize })
}

fn statements<'a>(list: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, TemplateError> {
    list.iter().map(statement).collect()
}

/// Rebuilds a statement or an expression at the place of another.
macro_rules! node {
    ($of:ident at $place:ident, $kind:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $of::$kind(Spanned::new(ast::$kind { $($field $(: $value)?),* }, $place.span()))
    };
}

/// Rebuilds a parsed template.
///
/// # Errors
/// [`TemplateError::Unsupported`] for tags that load other templates.
pub(super) fn statement<'a>(stmt: &Stmt<'a>) -> Result<Stmt<'a>, TemplateError> {
    Ok(match stmt {
        Stmt::Template(s) => node!(Stmt at s, Template { children: statements(&s.children)? }),
        Stmt::EmitExpr(s) => node!(Stmt at s, EmitExpr { expr: expression(&s.expr) }),
        Stmt::EmitRaw(s) => {
            node!(Stmt at s, EmitExpr { expr: node!(Expr at s, Const { value: Value::from(s.raw) }) })
        }
        Stmt::ForLoop(s) => node!(Stmt at s, ForLoop {
            target: target(&s.target),
            iter: expression(&s.iter),
            filter_expr: s.filter_expr.as_ref().map(expression),
            recursive: s.recursive,
            body: statements(&s.body)?,
            else_body: statements(&s.else_body)?,
        }),
        Stmt::IfCond(s) => node!(Stmt at s, IfCond {
            expr: expression(&s.expr),
            true_body: statements(&s.true_body)?,
            false_body: statements(&s.false_body)?,
        }),
        Stmt::WithBlock(s) => {
            let assignments = s.assignments.iter().map(|(to, value)| (target(to), expression(value))).collect();
            node!(Stmt at s, WithBlock { assignments, body: statements(&s.body)? })
        }
        Stmt::Set(s) => {
            let value = expression(&s.expr);
            let stored = matches!(s.target, Expr::GetAttr(_));
            let expr = if stored { call(STORE, [value], s.span()) } else { value };
            node!(Stmt at s, Set { target: target(&s.target), expr })
        }
        Stmt::SetBlock(s) => {
            let filter = s.filter.as_ref().map(expression);
            node!(Stmt at s, SetBlock { target: target(&s.target), filter, body: statements(&s.body)? })
        }
        Stmt::FilterBlock(s) => {
            node!(Stmt at s, FilterBlock { filter: expression(&s.filter), body: statements(&s.body)? })
        }
        Stmt::Macro(s) => Stmt::Macro(definition(s)?),
        Stmt::CallBlock(s) => {
            node!(Stmt at s, CallBlock { call: plain_call(&s.call), macro_decl: definition(&s.macro_decl)? })
        }
        Stmt::Continue(s) => node!(Stmt at s, Continue {}),
        Stmt::Break(s) => node!(Stmt at s, Break {}),
        Stmt::Do(s) => node!(Stmt at s, Do { call: plain_call(&s.call) }),
        Stmt::AutoEscape(s) => return unsupported("autoescape", s.span()),
        Stmt::Block(s) => return unsupported("block", s.span()),
        Stmt::Import(s) => return unsupported("import", s.span()),
        Stmt::FromImport(s) => return unsupported("from", s.span()),
        Stmt::Extends(s) => return unsupported("extends", s.span()),
        Stmt::Include(s) => return unsupported("include", s.span()),
    })
}

fn definition<'a>(s: &Spanned<ast::Macro<'a>>) -> Result<Spanned<ast::Macro<'a>>, TemplateError> {
    let node = ast::Macro {
        name: s.name,
        args: s.args.iter().map(target).collect(),
        defaults: expressions(&s.defaults),
        body: statements(&s.body)?,
    };
    Ok(Spanned::new(node, s.span()))
}

/// A call of one of our own functions.
fn call<'a, const N: usize>(name: &'static str, args: [Expr<'a>; N], span: Span) -> Expr<'a> {
    let expr = Expr::Var(Spanned::new(ast::Var { id: name }, span));
    let args = args.into_iter().map(CallArg::Pos).collect();
    Expr::Call(Spanned::new(ast::Call { expr, args }, span))
}

fn settle(expr: Expr<'_>) -> Expr<'_> {
    let span = expr.span();
    call(SETTLE, [expr], span)
}

/// An operand of a comparison. Constants are small.
fn compared<'a>(expr: &Expr<'a>) -> Expr<'a> {
    match expression(expr) {
        constant @ Expr::Const(_) => constant,
        other => {
            let span = other.span();
            call(COMPARE, [other], span)
        }
    }
}

/// The target of an assignment: names, attributes of namespaces, or lists of them.
fn target<'a>(expr: &Expr<'a>) -> Expr<'a> {
    match expr {
        Expr::List(s) => node!(Expr at s, List { items: s.items.iter().map(target).collect() }),
        other => expression(other),
    }
}

fn expressions<'a>(list: &[Expr<'a>]) -> Vec<Expr<'a>> {
    list.iter().map(expression).collect()
}

fn arguments<'a>(args: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    let argument = |arg: &CallArg<'a>| match arg {
        CallArg::Pos(value) => CallArg::Pos(expression(value)),
        CallArg::Kwarg(name, value) => CallArg::Kwarg(name, expression(value)),
        CallArg::PosSplat(value) => CallArg::PosSplat(expression(value)),
        CallArg::KwargSplat(value) => CallArg::KwargSplat(expression(value)),
    };
    args.iter().map(argument).collect()
}

fn plain_call<'a>(s: &Spanned<ast::Call<'a>>) -> Spanned<ast::Call<'a>> {
    Spanned::new(ast::Call { expr: expression(&s.expr), args: arguments(&s.args) }, s.span())
}

fn expression<'a>(expr: &Expr<'a>) -> Expr<'a> {
    match expr {
        Expr::Var(s) => node!(Expr at s, Var { id: s.id }),
        Expr::Const(s) => node!(Expr at s, Const { value: s.value.clone() }),
        Expr::Slice(s) => {
            let none = || node!(Expr at s, Const { value: Value::from(()) });
            let bound = |bound: &Option<Expr<'a>>| bound.as_ref().map_or_else(none, expression);
            let args = [expression(&s.expr), bound(&s.start), bound(&s.stop), bound(&s.step)];
            call(SLICE, args, s.span())
        }
        Expr::UnaryOp(s) => {
            let negates = matches!(s.op, ast::UnaryOpKind::Neg);
            let op = if negates { ast::UnaryOpKind::Neg } else { ast::UnaryOpKind::Not };
            node!(Expr at s, UnaryOp { op, expr: expression(&s.expr) })
        }
        Expr::BinOp(s) => binary(s),
        Expr::Compare(s) => {
            let ops = s.ops.iter().map(|op| ast::CompareOp { op: op.op, expr: compared(&op.expr) }).collect();
            node!(Expr at s, Compare { expr: compared(&s.expr), ops })
        }
        Expr::IfExpr(s) => node!(Expr at s, IfExpr {
            test_expr: expression(&s.test_expr),
            true_expr: expression(&s.true_expr),
            false_expr: s.false_expr.as_ref().map(expression),
        }),
        Expr::Filter(s) => {
            let expr = s.expr.as_ref().map(expression);
            let filter = node!(Expr at s, Filter { name: s.name, expr, args: arguments(&s.args) });
            // Without an operand it is the filter of a block, where the compiler expects a bare filter.
            if s.expr.is_some() { settle(filter) } else { filter }
        }
        Expr::Test(s) => {
            node!(Expr at s, Test { name: s.name, expr: expression(&s.expr), args: arguments(&s.args) })
        }
        Expr::GetAttr(s) => node!(Expr at s, GetAttr { expr: expression(&s.expr), name: s.name }),
        Expr::GetItem(s) => {
            node!(Expr at s, GetItem { expr: expression(&s.expr), subscript_expr: compared(&s.subscript_expr) })
        }
        Expr::Call(s) => settle(Expr::Call(plain_call(s))),
        Expr::List(s) => settle(node!(Expr at s, List { items: expressions(&s.items) })),
        Expr::Map(s) => {
            let keys = s.keys.iter().map(compared).collect();
            settle(node!(Expr at s, Map { keys, values: expressions(&s.values) }))
        }
    }
}

fn binary<'a>(s: &Spanned<ast::BinOp<'a>>) -> Expr<'a> {
    use BinOpKind::*;
    let build = |left, right| node!(Expr at s, BinOp { op: s.op, left, right });
    match s.op {
        Mul => call(MULTIPLY, [expression(&s.left), expression(&s.right)], s.span()),
        Concat => call(CONCAT, [expression(&s.left), expression(&s.right)], s.span()),
        Add => settle(build(expression(&s.left), expression(&s.right))),
        Eq | Ne | Lt | Lte | Gt | Gte | In => build(compared(&s.left), compared(&s.right)),
        ScAnd | ScOr | Sub | Div | FloorDiv | Rem | Pow => build(expression(&s.left), expression(&s.right)),
    }
}
