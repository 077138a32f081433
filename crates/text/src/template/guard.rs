//! Rewriting a template so that it computes as Python does, and everything of unbounded cost passes through the budget.
//!
//! A parsed template is rebuilt with calls of functions that no template can name: operators, comparisons, slices,
//! items and attributes that may be methods become calls of what `python` has for them, and new values are paid for:
//! - [`SETTLE`] around calls, list and mapping literals, [`TUPLE`] in place of a tuple;
//! - [`KEY`] around the keys of mappings, [`ITERATE`] around what a loop goes through;
//! - [`STORE`] around what is stored in a namespace.
//!
//! Literal text is turned into an expression, so that the formatter sees it and can pay for it. This also keeps the
//! compiler from folding large constants. Tags that load other templates are refused, as there are none, and so is what
//! Jinja has and the library does not.
//!
//! # Templates are untrusted code
//!
//! Templates are untrusted code minijinja counts instructions, but one instruction can copy any amount of text.
//! `template/guard.rs` rewrites the parsed template so that every operation of unbounded cost uses a budget of time,
//! text and nesting. Templates are written for Python. So the rewritten template computes with `template/python`, which
//! has Python's operators, methods and printing, and with the filters and tests of `template/filters` and
//! `template/tests.rs`. jinja2 is the oracle (`scripts/golden/expressions.py`, `cargo xtask prove templates`). The
//! rewriting needs minijinja's `unstable_machinery`, so `Cargo.toml` pins the exact version. Before you raise it,
//! review `guard.rs`.

use std::cell::{Cell, RefCell};

use minijinja::machinery::ast::{self, BinOpKind, CallArg, CompareOpKind, Expr, Spanned, Stmt, UnaryOpKind};
use minijinja::machinery::{Span, Token, WhitespaceConfig, tokenize};
use minijinja::{Error, Value};

use super::budget::Budget;
use super::library::{MISSING_FUNCTIONS, MISSING_METHODS};
use super::outcome::{Outcome, invalid};
use super::{TemplateError, filters, python, tests};

pub(super) const SETTLE: &str = "<settle>";
pub(super) const TUPLE: &str = "<tuple>";
pub(super) const KEY: &str = "<key>";
pub(super) const ITERATE: &str = "<iterate>";
pub(super) const ATTRIBUTE: &str = "<attribute>";
pub(super) const ITEM: &str = "<item>";
pub(super) const CONCAT: &str = "<concat>";
pub(super) const SLICE: &str = "<slice>";
pub(super) const STORE: &str = "<store>";
pub(super) const NEGATE: &str = "<negate>";
pub(super) const CHAIN: &str = "<chain>";

/// What one of these functions does.
pub(super) type Guarded = fn(&Budget, &[Value]) -> Outcome;

/// An operand of such a function.
pub(super) fn operand(args: &[Value], index: usize) -> Result<&Value, Error> {
    args.get(index).ok_or_else(|| invalid("an operand is missing"))
}

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

/// Rebuilds a statement or an expression at the place of another.
macro_rules! node {
    ($of:ident at $place:ident, $kind:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $of::$kind(Spanned::new(ast::$kind { $($field $(: $value)?),* }, $place.span()))
    };
}

struct Guard<'s> {
    source: &'s str,
    /// The first thing that is not provided.
    failure: RefCell<Option<TemplateError>>,
    /// The number of enclosing conditions. Within a condition, an unknown name fails only if it is reached, as in
    /// Jinja.
    conditions: Cell<usize>,
}

/// Rebuilds a parsed template.
///
/// # Errors
/// [`TemplateError::Unsupported`] for tags that load other templates, [`TemplateError::Missing`] for filters, tests,
/// functions and methods that are not provided.
pub(super) fn rebuilt<'a>(source: &str, stmt: &Stmt<'a>) -> Result<Stmt<'a>, TemplateError> {
    let guard = Guard { source, failure: RefCell::new(None), conditions: Cell::new(0) };
    let rebuilt = guard.statement(stmt)?;
    match guard.failure.into_inner() {
        Some(failure) => Err(failure),
        None => Ok(rebuilt),
    }
}

/// A call of one of our own functions.
fn call<'a>(name: &'static str, args: impl IntoIterator<Item = Expr<'a>>, span: Span) -> Expr<'a> {
    let expr = Expr::Var(Spanned::new(ast::Var { id: name }, span));
    let args = args.into_iter().map(CallArg::Pos).collect();
    Expr::Call(Spanned::new(ast::Call { expr, args }, span))
}

fn constant<'a>(value: impl Into<Value>, span: Span) -> Expr<'a> {
    Expr::Const(Spanned::new(ast::Const { value: value.into() }, span))
}

fn settle(expr: Expr<'_>) -> Expr<'_> {
    let span = expr.span();
    call(SETTLE, [expr], span)
}

impl Guard<'_> {
    fn statements<'a>(&self, list: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, TemplateError> {
        list.iter().map(|stmt| self.statement(stmt)).collect()
    }

    fn statement<'a>(&self, stmt: &Stmt<'a>) -> Result<Stmt<'a>, TemplateError> {
        Ok(match stmt {
            Stmt::Template(s) => node!(Stmt at s, Template { children: self.statements(&s.children)? }),
            Stmt::EmitExpr(s) => node!(Stmt at s, EmitExpr { expr: self.expression(&s.expr) }),
            Stmt::EmitRaw(s) => {
                node!(Stmt at s, EmitExpr { expr: node!(Expr at s, Const { value: Value::from(s.raw) }) })
            }
            Stmt::ForLoop(s) => node!(Stmt at s, ForLoop {
                target: self.target(&s.target),
                iter: call(ITERATE, [self.expression(&s.iter)], s.iter.span()),
                filter_expr: s.filter_expr.as_ref().map(|expr| self.expression(expr)),
                recursive: s.recursive,
                body: self.statements(&s.body)?,
                else_body: self.statements(&s.else_body)?,
            }),
            Stmt::IfCond(s) => self.in_condition(|| {
                Ok(node!(Stmt at s, IfCond {
                    expr: self.expression(&s.expr),
                    true_body: self.statements(&s.true_body)?,
                    false_body: self.statements(&s.false_body)?,
                }))
            })?,
            Stmt::WithBlock(s) => {
                let assignments =
                    s.assignments.iter().map(|(to, value)| (self.target(to), self.expression(value))).collect();
                node!(Stmt at s, WithBlock { assignments, body: self.statements(&s.body)? })
            }
            Stmt::Set(s) => {
                let value = self.expression(&s.expr);
                let stored = matches!(s.target, Expr::GetAttr(_));
                let expr = if stored { call(STORE, [value], s.span()) } else { value };
                node!(Stmt at s, Set { target: self.target(&s.target), expr })
            }
            Stmt::SetBlock(s) => {
                let filter = s.filter.as_ref().map(|expr| self.expression(expr));
                node!(Stmt at s, SetBlock { target: self.target(&s.target), filter, body: self.statements(&s.body)? })
            }
            Stmt::FilterBlock(s) => {
                node!(Stmt at s, FilterBlock { filter: self.expression(&s.filter), body: self.statements(&s.body)? })
            }
            Stmt::Macro(s) => Stmt::Macro(self.definition(s)?),
            Stmt::CallBlock(s) => {
                node!(Stmt at s, CallBlock { call: self.plain_call(&s.call), macro_decl: self.definition(&s.macro_decl)? })
            }
            Stmt::Continue(s) => node!(Stmt at s, Continue {}),
            Stmt::Break(s) => node!(Stmt at s, Break {}),
            Stmt::Do(s) => node!(Stmt at s, Do { call: self.plain_call(&s.call) }),
            Stmt::AutoEscape(s) => return unsupported("autoescape", s.span()),
            Stmt::Block(s) => return unsupported("block", s.span()),
            Stmt::Import(s) => return unsupported("import", s.span()),
            Stmt::FromImport(s) => return unsupported("from", s.span()),
            Stmt::Extends(s) => return unsupported("extends", s.span()),
            Stmt::Include(s) => return unsupported("include", s.span()),
        })
    }

    fn definition<'a>(&self, s: &Spanned<ast::Macro<'a>>) -> Result<Spanned<ast::Macro<'a>>, TemplateError> {
        let node = ast::Macro {
            name: s.name,
            args: s.args.iter().map(|arg| self.target(arg)).collect(),
            defaults: self.expressions(&s.defaults),
            body: self.statements(&s.body)?,
        };
        Ok(Spanned::new(node, s.span()))
    }

    fn in_condition<T>(&self, rebuild: impl FnOnce() -> T) -> T {
        self.conditions.set(self.conditions.get() + 1);
        let rebuilt = rebuild();
        self.conditions.set(self.conditions.get() - 1);
        rebuilt
    }

    /// Notes what a template uses and nothing provides.
    fn require(&self, provided: bool, kind: &'static str, name: &str, span: Span) {
        let mut failure = self.failure.borrow_mut();
        if !provided && failure.is_none() {
            *failure = Some(TemplateError::Missing { kind, name: name.to_owned(), line: span.start_line as usize });
        }
    }

    /// The target of an assignment: names, attributes of namespaces, or lists of them.
    fn target<'a>(&self, expr: &Expr<'a>) -> Expr<'a> {
        match expr {
            Expr::List(s) => {
                node!(Expr at s, List { items: s.items.iter().map(|item| self.target(item)).collect() })
            }
            Expr::GetAttr(s) => node!(Expr at s, GetAttr { expr: self.expression(&s.expr), name: s.name }),
            other => self.expression(other),
        }
    }

    fn expressions<'a>(&self, list: &[Expr<'a>]) -> Vec<Expr<'a>> {
        list.iter().map(|expr| self.expression(expr)).collect()
    }

    fn arguments<'a>(&self, args: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
        let argument = |arg: &CallArg<'a>| match arg {
            CallArg::Pos(value) => CallArg::Pos(self.expression(value)),
            CallArg::Kwarg(name, value) => CallArg::Kwarg(name, self.expression(value)),
            CallArg::PosSplat(value) => CallArg::PosSplat(self.expression(value)),
            CallArg::KwargSplat(value) => CallArg::KwargSplat(self.expression(value)),
        };
        args.iter().map(argument).collect()
    }

    fn plain_call<'a>(&self, s: &Spanned<ast::Call<'a>>) -> Spanned<ast::Call<'a>> {
        self.call(s).0
    }

    /// A call, and whether it is negated; see [`Self::postfix`].
    fn call<'a>(&self, s: &Spanned<ast::Call<'a>>) -> (Spanned<ast::Call<'a>>, bool) {
        let (expr, is_negated) = match &s.expr {
            // The engine calls methods by themselves.
            Expr::GetAttr(callee) => {
                self.require(!MISSING_METHODS.contains(&callee.name), "method", callee.name, s.span());
                let (expr, is_negated) = self.base(&callee.expr, s.span());
                (node!(Expr at callee, GetAttr { expr, name: callee.name }), is_negated)
            }
            Expr::Var(callee) => {
                self.require(!MISSING_FUNCTIONS.contains(&callee.id), "function", callee.id, s.span());
                (self.expression(&s.expr), false)
            }
            other => self.base(other, s.span()),
        };
        (Spanned::new(ast::Call { expr, args: self.arguments(&s.args) }, s.span()), is_negated)
    }

    /// An attribute, item, slice or call, and whether it is negated: the parser reads `-x.y` as `(-x).y`.
    fn postfix<'a>(&self, expr: &Expr<'a>) -> (Expr<'a>, bool) {
        let span = expr.span();
        match expr {
            Expr::GetAttr(s) => {
                let (base, is_negated) = self.base(&s.expr, span);
                let expr = match python::is_method(s.name) {
                    true => call(ATTRIBUTE, [base, constant(s.name, span)], span),
                    false => node!(Expr at s, GetAttr { expr: base, name: s.name }),
                };
                (expr, is_negated)
            }
            Expr::GetItem(s) => {
                let (base, is_negated) = self.base(&s.expr, span);
                (call(ITEM, [base, self.expression(&s.subscript_expr)], span), is_negated)
            }
            Expr::Slice(s) => {
                let (base, is_negated) = self.base(&s.expr, span);
                let bound = |bound: &Option<Expr<'a>>| {
                    bound.as_ref().map_or_else(|| constant((), span), |bound| self.expression(bound))
                };
                (call(SLICE, [base, bound(&s.start), bound(&s.stop), bound(&s.step)], span), is_negated)
            }
            Expr::Call(s) => {
                let (called, is_negated) = self.call(s);
                (settle(Expr::Call(called)), is_negated)
            }
            other => (self.expression(other), false),
        }
    }

    /// What an attribute and so on is of. It loses a sign at its start, which is that of the whole.
    fn base<'a>(&self, expr: &Expr<'a>, whole: Span) -> (Expr<'a>, bool) {
        let begins_whole = expr.span().start_offset == whole.start_offset;
        match expr {
            Expr::UnaryOp(s) if begins_whole && matches!(s.op, UnaryOpKind::Neg) => (self.expression(&s.expr), true),
            Expr::GetAttr(_) | Expr::GetItem(_) | Expr::Slice(_) | Expr::Call(_) if begins_whole => self.postfix(expr),
            other => (self.expression(other), false),
        }
    }

    fn expression<'a>(&self, expr: &Expr<'a>) -> Expr<'a> {
        let expr_span = expr.span();
        match expr {
            Expr::Var(s) => {
                self.require(!["kwargs", "varargs"].contains(&s.id), "variable of macros", s.id, s.span());
                node!(Expr at s, Var { id: s.id })
            }
            Expr::Const(s) => node!(Expr at s, Const { value: s.value.clone() }),
            Expr::GetAttr(_) | Expr::GetItem(_) | Expr::Slice(_) | Expr::Call(_) => match self.postfix(expr) {
                (expr, true) => call(NEGATE, [expr], expr_span),
                (expr, false) => expr,
            },
            Expr::UnaryOp(s) => match s.op {
                UnaryOpKind::Neg => call(NEGATE, [self.expression(&s.expr)], s.span()),
                UnaryOpKind::Not => {
                    node!(Expr at s, UnaryOp { op: UnaryOpKind::Not, expr: self.expression(&s.expr) })
                }
            },
            Expr::BinOp(s) => self.binary(s),
            Expr::Compare(s) => {
                let mut args = vec![self.expression(&s.expr)];
                for op in &s.ops {
                    args.push(constant(comparison(&op.op), s.span()));
                    args.push(self.expression(&op.expr));
                }
                call(CHAIN, args, s.span())
            }
            Expr::IfExpr(s) => self.in_condition(|| {
                node!(Expr at s, IfExpr {
                    test_expr: self.expression(&s.test_expr),
                    true_expr: self.expression(&s.true_expr),
                    false_expr: s.false_expr.as_ref().map(|expr| self.expression(expr)),
                })
            }),
            Expr::Filter(s) => {
                let may_fail = self.conditions.get() > 0 && !filters::MISSING.contains(&s.name);
                self.require(may_fail || filters::exists(s.name), "filter", s.name, s.span());
                let expr = s.expr.as_ref().map(|expr| self.expression(expr));
                node!(Expr at s, Filter { name: s.name, expr, args: self.arguments(&s.args) })
            }
            Expr::Test(s) => {
                self.require(self.conditions.get() > 0 || tests::exists(s.name), "test", s.name, s.span());
                self.require(!self.has_bare_sign(&s.args), "sign behind the test", s.name, s.span());
                node!(Expr at s, Test { name: s.name, expr: self.expression(&s.expr), args: self.arguments(&s.args) })
            }
            Expr::List(s) if self.is_list(s.span()) => {
                settle(node!(Expr at s, List { items: self.expressions(&s.items) }))
            }
            Expr::List(s) => call(TUPLE, self.expressions(&s.items), s.span()),
            Expr::Map(s) => {
                let key = |key: &Expr<'a>| match self.expression(key) {
                    constant @ Expr::Const(_) => constant,
                    key => call(KEY, [key], s.span()),
                };
                let keys = s.keys.iter().map(key).collect();
                settle(node!(Expr at s, Map { keys, values: self.expressions(&s.values) }))
            }
        }
    }

    /// Whether a test has an argument with a sign and without parentheses, which in Jinja is a subtraction.
    fn has_bare_sign(&self, args: &[CallArg]) -> bool {
        let [CallArg::Pos(arg)] = args else { return false };
        let (before, from) = self.source.split_at_checked(arg.span().start_offset as usize).unwrap_or_default();
        from.starts_with('-') && !before.trim_end().ends_with('(')
    }

    /// The parser tells lists from tuples only by where they start.
    fn is_list(&self, span: Span) -> bool {
        self.source.as_bytes().get(span.start_offset as usize) == Some(&b'[')
    }

    fn binary<'a>(&self, s: &Spanned<ast::BinOp<'a>>) -> Expr<'a> {
        use BinOpKind::*;
        let (left, right) = (self.expression(&s.left), self.expression(&s.right));
        let name = match s.op {
            ScAnd | ScOr => {
                // Of constants the compiler would make a boolean.
                let left = if matches!(left, Expr::Const(_) | Expr::UnaryOp(_)) { settle(left) } else { left };
                return node!(Expr at s, BinOp { op: s.op, left, right });
            }
            Add => "+",
            Sub => "-",
            Mul => "*",
            Div => "/",
            FloorDiv => "//",
            Rem => "%",
            Pow => "**",
            Concat => CONCAT,
            Eq => return compared(left, "==", right, s.span()),
            Ne => return compared(left, "!=", right, s.span()),
            Lt => return compared(left, "<", right, s.span()),
            Lte => return compared(left, "<=", right, s.span()),
            Gt => return compared(left, ">", right, s.span()),
            Gte => return compared(left, ">=", right, s.span()),
            In => return compared(left, "in", right, s.span()),
        };
        call(name, [left, right], s.span())
    }
}

/// A chain of one comparison.
fn compared<'a>(left: Expr<'a>, op: &'static str, right: Expr<'a>, span: Span) -> Expr<'a> {
    call(CHAIN, [left, constant(op, span), right], span)
}

fn comparison(op: &CompareOpKind) -> &'static str {
    match op {
        CompareOpKind::Eq => "==",
        CompareOpKind::Ne => "!=",
        CompareOpKind::Lt => "<",
        CompareOpKind::Lte => "<=",
        CompareOpKind::Gt => ">",
        CompareOpKind::Gte => ">=",
        CompareOpKind::In => "in",
        CompareOpKind::NotIn => "not in",
    }
}
