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
            return Err(TemplateError::TooComplex { line: span.start_line as usize });
        }
    }
    Ok(())
}

/// Rebuilds a parsed template.
///
/// # Errors
/// [`TemplateError::Unsupported`] for tags that load other templates.
pub(super) fn guard<'a>(template: &Stmt<'a>) -> Result<Stmt<'a>, TemplateError> {
    statement(template)
}

fn unsupported<T>(tag: &'static str, span: Span) -> Result<T, TemplateError> {
    Err(TemplateError::Unsupported { tag, line: span.start_line as usize })
}

fn statements<'a>(list: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, TemplateError> {
    list.iter().map(statement).collect()
}

fn statement<'a>(stmt: &Stmt<'a>) -> Result<Stmt<'a>, TemplateError> {
    Ok(match stmt {
        Stmt::Template(s) => {
            Stmt::Template(Spanned::new(ast::Template { children: statements(&s.children)? }, s.span()))
        }
        Stmt::EmitExpr(s) => Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr: expression(&s.expr) }, s.span())),
        Stmt::EmitRaw(s) => {
            let text = ast::Const { value: Value::from(s.raw) };
            let expr = Expr::Const(Spanned::new(text, s.span()));
            Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr }, s.span()))
        }
        Stmt::ForLoop(s) => {
            let node = ast::ForLoop {
                target: target(&s.target),
                iter: expression(&s.iter),
                filter_expr: s.filter_expr.as_ref().map(expression),
                recursive: s.recursive,
                body: statements(&s.body)?,
                else_body: statements(&s.else_body)?,
            };
            Stmt::ForLoop(Spanned::new(node, s.span()))
        }
        Stmt::IfCond(s) => {
            let node = ast::IfCond {
                expr: expression(&s.expr),
                true_body: statements(&s.true_body)?,
                false_body: statements(&s.false_body)?,
            };
            Stmt::IfCond(Spanned::new(node, s.span()))
        }
        Stmt::WithBlock(s) => {
            let assignments = s.assignments.iter().map(|(to, value)| (target(to), expression(value))).collect();
            let node = ast::WithBlock { assignments, body: statements(&s.body)? };
            Stmt::WithBlock(Spanned::new(node, s.span()))
        }
        Stmt::Set(s) => {
            let value = expression(&s.expr);
            let stored = matches!(s.target, Expr::GetAttr(_));
            let expr = if stored { call(STORE, [value], s.span()) } else { value };
            Stmt::Set(Spanned::new(ast::Set { target: target(&s.target), expr }, s.span()))
        }
        Stmt::SetBlock(s) => {
            let filter = s.filter.as_ref().map(expression);
            let node = ast::SetBlock { target: target(&s.target), filter, body: statements(&s.body)? };
            Stmt::SetBlock(Spanned::new(node, s.span()))
        }
        Stmt::AutoEscape(s) => return unsupported("autoescape", s.span()),
        Stmt::FilterBlock(s) => {
            let node = ast::FilterBlock { filter: expression(&s.filter), body: statements(&s.body)? };
            Stmt::FilterBlock(Spanned::new(node, s.span()))
        }
        Stmt::Block(s) => return unsupported("block", s.span()),
        Stmt::Import(s) => return unsupported("import", s.span()),
        Stmt::FromImport(s) => return unsupported("from", s.span()),
        Stmt::Extends(s) => return unsupported("extends", s.span()),
        Stmt::Include(s) => return unsupported("include", s.span()),
        Stmt::Macro(s) => Stmt::Macro(definition(s)?),
        Stmt::CallBlock(s) => {
            let node = ast::CallBlock { call: plain_call(&s.call), macro_decl: definition(&s.macro_decl)? };
            Stmt::CallBlock(Spanned::new(node, s.span()))
        }
        Stmt::Continue(s) => Stmt::Continue(Spanned::new(ast::Continue, s.span())),
        Stmt::Break(s) => Stmt::Break(Spanned::new(ast::Break, s.span())),
        Stmt::Do(s) => Stmt::Do(Spanned::new(ast::Do { call: plain_call(&s.call) }, s.span())),
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

/// What is assigned to: names, attributes of namespaces, or lists of them.
fn target<'a>(expr: &Expr<'a>) -> Expr<'a> {
    match expr {
        Expr::List(s) => Expr::List(Spanned::new(ast::List { items: s.items.iter().map(target).collect() }, s.span())),
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
        Expr::Var(s) => Expr::Var(Spanned::new(ast::Var { id: s.id }, s.span())),
        Expr::Const(s) => Expr::Const(Spanned::new(ast::Const { value: s.value.clone() }, s.span())),
        Expr::Slice(s) => {
            let none = || Expr::Const(Spanned::new(ast::Const { value: Value::from(()) }, s.span()));
            let bound = |bound: &Option<Expr<'a>>| bound.as_ref().map_or_else(none, expression);
            let args = [expression(&s.expr), bound(&s.start), bound(&s.stop), bound(&s.step)];
            call(SLICE, args, s.span())
        }
        Expr::UnaryOp(s) => {
            let negates = matches!(s.op, ast::UnaryOpKind::Neg);
            let op = if negates { ast::UnaryOpKind::Neg } else { ast::UnaryOpKind::Not };
            Expr::UnaryOp(Spanned::new(ast::UnaryOp { op, expr: expression(&s.expr) }, s.span()))
        }
        Expr::BinOp(s) => binary(s),
        Expr::Compare(s) => {
            let ops = s.ops.iter().map(|op| ast::CompareOp { op: op.op, expr: compared(&op.expr) }).collect();
            Expr::Compare(Spanned::new(ast::Compare { expr: compared(&s.expr), ops }, s.span()))
        }
        Expr::IfExpr(s) => {
            let node = ast::IfExpr {
                test_expr: expression(&s.test_expr),
                true_expr: expression(&s.true_expr),
                false_expr: s.false_expr.as_ref().map(expression),
            };
            Expr::IfExpr(Spanned::new(node, s.span()))
        }
        Expr::Filter(s) => {
            let node = ast::Filter { name: s.name, expr: s.expr.as_ref().map(expression), args: arguments(&s.args) };
            let filter = Expr::Filter(Spanned::new(node, s.span()));
            // Without an operand it is the filter of a block, where the compiler expects a bare filter.
            if s.expr.is_some() { settle(filter) } else { filter }
        }
        Expr::Test(s) => {
            let node = ast::Test { name: s.name, expr: expression(&s.expr), args: arguments(&s.args) };
            Expr::Test(Spanned::new(node, s.span()))
        }
        Expr::GetAttr(s) => {
            Expr::GetAttr(Spanned::new(ast::GetAttr { expr: expression(&s.expr), name: s.name }, s.span()))
        }
        Expr::GetItem(s) => {
            let subscript_expr = compared(&s.subscript_expr);
            Expr::GetItem(Spanned::new(ast::GetItem { expr: expression(&s.expr), subscript_expr }, s.span()))
        }
        Expr::Call(s) => settle(Expr::Call(plain_call(s))),
        Expr::List(s) => settle(Expr::List(Spanned::new(ast::List { items: expressions(&s.items) }, s.span()))),
        Expr::Map(s) => {
            let keys = s.keys.iter().map(compared).collect();
            let node = ast::Map { keys, values: expressions(&s.values) };
            settle(Expr::Map(Spanned::new(node, s.span())))
        }
    }
}

fn binary<'a>(s: &Spanned<ast::BinOp<'a>>) -> Expr<'a> {
    let build = |left, right| Expr::BinOp(Spanned::new(ast::BinOp { op: s.op, left, right }, s.span()));
    match s.op {
        BinOpKind::Mul => call(MULTIPLY, [expression(&s.left), expression(&s.right)], s.span()),
        BinOpKind::Concat => call(CONCAT, [expression(&s.left), expression(&s.right)], s.span()),
        BinOpKind::Add => settle(build(expression(&s.left), expression(&s.right))),
        BinOpKind::Eq
        | BinOpKind::Ne
        | BinOpKind::Lt
        | BinOpKind::Lte
        | BinOpKind::Gt
        | BinOpKind::Gte
        | BinOpKind::In => build(compared(&s.left), compared(&s.right)),
        BinOpKind::ScAnd
        | BinOpKind::ScOr
        | BinOpKind::Sub
        | BinOpKind::Div
        | BinOpKind::FloorDiv
        | BinOpKind::Rem
        | BinOpKind::Pow => build(expression(&s.left), expression(&s.right)),
    }
}
