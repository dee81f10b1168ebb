//! The changes of one source: each is put beside what it changes, behind its number.

use std::collections::BTreeSet;
use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{
    Arm, Attribute, BinOp, Block, Expr, ExprBinary, ExprMethodCall, FieldValue, Meta, Pat, ReturnType,
    Signature, Stmt,
};

use crate::edits::Edits;

/// Methods whose closure says yes or no.
const ASK: [&str; 12] = [
    "all",
    "any",
    "filter",
    "find",
    "is_none_or",
    "is_ok_and",
    "is_some_and",
    "partition",
    "position",
    "retain",
    "skip_while",
    "take_while",
];

/// Methods that bound or extend what they are called on, and mostly return the same type.
const BOUND: [&str; 8] = ["clamp", "max", "min", "or", "or_else", "saturating_add", "saturating_sub", "take"];

/// What a function returns at once, by how its type begins.
const AT_ONCE: [(&str, &str); 9] = [
    ("Option<", "None"),
    ("Result<(),", "Ok(())"),
    ("String", "String::new()"),
    ("Vec<", "Vec::new()"),
    ("u8", "0"),
    ("u16", "0"),
    ("u32", "0"),
    ("u64", "0"),
    ("usize", "0"),
];

/// One change, as people read it.
pub struct Change {
    /// What stands for it in the rewritten source; counted from 1 over the files of a crate.
    pub number: usize,
    /// File and line, function, kind, and the text that is changed.
    pub text: String,
}

/// Puts the changes of `source` into it, numbered from `first` on, but for those that are to be left out.
pub fn rewrite(
    source: &str,
    file: &str,
    first: usize,
    left_out: &BTreeSet<usize>,
) -> syn::Result<(String, Vec<Change>)> {
    let tree = syn::parse_file(source)?;
    let mut changes = Changes {
        source,
        file,
        first,
        left_out,
        list: Vec::new(),
        edits: Edits::default(),
        function: String::new(),
        outside: 0,
    };
    changes.visit_file(&tree);
    Ok((changes.edits.apply(source), changes.list))
}

struct Changes<'a> {
    source: &'a str,
    file: &'a str,
    first: usize,
    left_out: &'a BTreeSet<usize>,
    list: Vec<Change>,
    edits: Edits,
    function: String,
    /// How many constants, tests and the like the place is inside of, in which nothing is changed.
    outside: usize,
}

impl Changes<'_> {
    /// The number of another change; `None` where nothing is changed, or if it is to be left out.
    fn change(&mut self, kind: &str, at: Span) -> Option<usize> {
        if self.outside > 0 {
            return None;
        }
        let number = self.first + self.list.len();
        let words: Vec<_> = self.source[at.byte_range()].split_whitespace().collect();
        let what: String = words.join(" ").chars().take(140).collect();
        let text = format!("{}:{}\t{}\t{kind}\t{what}", self.file, at.start().line, self.function);
        self.list.push(Change { number, text });
        (!self.left_out.contains(&number)).then_some(number)
    }

    fn wrap(&mut self, kind: &str, switch: &str, expr: &Expr) {
        if let Some(number) = self.change(kind, expr.span()) {
            self.edits.wrap(&range(expr), format!("crate::__survey::{switch}({number}, "), ")");
        }
    }

    /// A condition is always true, or always false; and so is each of its operands where the others decide.
    fn condition(&mut self, expr: &Expr) {
        match expr {
            Expr::Let(_) | Expr::Lit(_) | Expr::Block(_) | Expr::If(_) | Expr::Match(_) => return,
            Expr::Paren(inner) => return self.condition(&inner.expr),
            Expr::Binary(both) if has_let(expr) => {
                self.condition(&both.left);
                return self.condition(&both.right);
            }
            Expr::Binary(both) if is_joined(&both.op) => {
                let is_and = matches!(both.op, BinOp::And(_));
                self.operand(&both.left, is_and);
                self.operand(&both.right, is_and);
            }
            _ => {}
        }
        self.wrap("always true", "always", expr);
        self.wrap("always false", "never", expr);
    }

    fn operand(&mut self, expr: &Expr, is_and: bool) {
        match expr {
            Expr::Let(_) => {}
            Expr::Paren(inner) => self.condition(&inner.expr),
            Expr::Binary(both) if is_joined(&both.op) && matches!(both.op, BinOp::And(_)) == is_and => {
                self.operand(&both.left, is_and);
                self.operand(&both.right, is_and);
            }
            Expr::Binary(both) if is_joined(&both.op) => self.condition(expr),
            _ if is_and => self.wrap("operand always true", "always", expr),
            _ => self.wrap("operand always false", "never", expr),
        }
    }

    /// A call or an assignment is left out.
    fn statement(&mut self, expr: &Expr, whole: Span) {
        let done = match expr {
            Expr::Await(awaited) => &*awaited.base,
            Expr::Try(tried) => &*tried.expr,
            expr => expr,
        };
        let kind = match done {
            // The first value of a variable cannot be left out.
            Expr::Assign(set) if matches!(&*set.left, Expr::Path(_) | Expr::Infer(_)) => return,
            Expr::Assign(_) => "no assignment",
            Expr::Binary(added) if is_assignment(&added.op) => "no assignment",
            Expr::MethodCall(_) | Expr::Call(_) | Expr::Await(_) => "no call",
            _ => return,
        };
        if let Some(number) = self.change(kind, expr.span()) {
            self.edits.wrap(&whole.byte_range(), format!("if !crate::__survey::on({number}) {{ "), " }");
        }
    }

    /// What is left of `a + b` or `a.min(b)` is `a`.
    fn first_alone(&mut self, whole: Span, first: &Expr, rest: usize, operator: &str) {
        if let Some(number) = self.change("the first alone", whole) {
            self.edits.wrap(&whole.byte_range(), "({ let first = ".to_owned(), " } })");
            let text = format!("; if crate::__survey::on({number}) {{ first }} else {{ first {operator}");
            self.edits.between(range(first).end..rest, text);
        }
    }

    fn function(
        &mut self,
        signature: &Signature,
        block: &Block,
        attributes: &[Attribute],
        visit: impl FnOnce(&mut Self),
    ) {
        let outside = usize::from(signature.constness.is_some() || is_left_alone(attributes));
        self.outside += outside;
        let caller = std::mem::replace(&mut self.function, signature.ident.to_string());
        let returned = match &signature.output {
            ReturnType::Default => "",
            ReturnType::Type(_, kind) => &self.source[kind.span().byte_range()],
        };
        let at_once = AT_ONCE.iter().find(|(begins, _)| returned.starts_with(begins));
        if let Some((_, value)) = at_once
            && let Some(number) = self.change(&format!("returns {value}"), signature.ident.span())
        {
            let text = format!(" if crate::__survey::on({number}) {{ return {value}; }} ");
            self.edits.begin_block(block.brace_token.span.open().byte_range().end, text);
        }
        match block.stmts.last() {
            Some(Stmt::Expr(last, None)) if returned == "bool" => self.condition(last),
            Some(Stmt::Expr(last, None)) if returned.is_empty() => self.statement(last, last.span()),
            _ => {}
        }
        visit(self);
        self.function = caller;
        self.outside -= outside;
    }

    fn beside_nothing(&mut self, is_outside: bool, visit: impl FnOnce(&mut Self)) {
        self.outside += usize::from(is_outside);
        visit(self);
        self.outside -= usize::from(is_outside);
    }

    /// An arm is left out where another one takes everything.
    fn arms(&mut self, arms: &[Arm]) {
        let takes_all = |arm: &Arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none();
        let has_other = arms.iter().any(takes_all);
        for arm in arms {
            if let Some((_, guard)) = &arm.guard {
                self.condition(guard);
            } else if has_other
                && !takes_all(arm)
                && let Some(number) = self.change("no arm", arm.pat.span())
            {
                let end = arm.pat.span().byte_range().end;
                self.edits.between(end..end, format!(" if !crate::__survey::on({number})"));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Changes<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.beside_nothing(is_left_alone(&item.attrs), |changes| visit::visit_item_mod(changes, item));
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        let is_text = of.is_some_and(|of| of.ident == "Debug" || of.ident == "Display");
        self.beside_nothing(is_text || is_left_alone(&item.attrs), |changes| {
            visit::visit_item_impl(changes, item);
        });
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block, &item.attrs, |changes| visit::visit_item_fn(changes, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block, &item.attrs, |changes| {
            visit::visit_impl_item_fn(changes, item);
        });
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.condition(&expr.cond);
        visit::visit_expr_if(self, expr);
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.condition(&expr.cond);
        visit::visit_expr_while(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        self.arms(&expr.arms);
        visit::visit_expr_match(self, expr);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt {
            self.statement(expr, stmt.span());
        }
        visit::visit_stmt(self, stmt);
    }

    /// A field is left at its default.
    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        let value = &self.source[range(&field.expr)];
        let is_default = ["None", "0", "false"].contains(&value)
            || value.ends_with("::new()")
            || value.ends_with("default()");
        // A field's name alone is also its value.
        let name = if field.colon_token.is_none() { format!("{value}: ") } else { String::new() };
        if !is_default && let Some(number) = self.change("no value", field.span()) {
            let before = format!(
                "{name}(if crate::__survey::on({number}) {{ ::std::default::Default::default() }} else {{ "
            );
            self.edits.wrap(&range(&field.expr), before, " })");
        }
        visit::visit_field_value(self, field);
    }

    fn visit_expr_binary(&mut self, expr: &'ast ExprBinary) {
        let between = range(&expr.left).end..range(&expr.right).start;
        let compared = match expr.op {
            BinOp::Lt(_) => "less",
            BinOp::Le(_) => "at_most",
            BinOp::Gt(_) => "more",
            BinOp::Ge(_) => "at_least",
            _ => "",
        };
        if !compared.is_empty()
            && let Some(number) = self.change("boundary", expr.span())
        {
            let before = format!("crate::__survey::{compared}({number}, &(");
            self.edits.wrap(&expr.span().byte_range(), before, "))");
            self.edits.between(between.clone(), "), &(".to_owned());
        }
        if matches!(expr.op, BinOp::Add(_) | BinOp::Sub(_)) {
            let operator = if matches!(expr.op, BinOp::Add(_)) { "+ " } else { "- " };
            self.first_alone(expr.span(), &expr.left, between.end, operator);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        let asked = call.args.first().filter(|_| ASK.contains(&name.as_str()));
        if let Some(Expr::Closure(closure)) = asked {
            match &*closure.body {
                Expr::Block(body) => {
                    if let Some(Stmt::Expr(last, None)) = body.block.stmts.last() {
                        self.condition(last);
                    }
                }
                body => self.condition(body),
            }
        }
        if name == "then" || name == "then_some" {
            self.condition(&call.receiver);
        }
        if BOUND.contains(&name.as_str()) && !call.args.is_empty() {
            let dot = call.dot_token.span.byte_range().start;
            self.first_alone(call.span(), &call.receiver, dot, "");
        }
        visit::visit_expr_method_call(self, call);
    }
}

fn range(expr: &Expr) -> Range<usize> {
    expr.span().byte_range()
}

fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(both) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}

fn is_joined(op: &BinOp) -> bool {
    matches!(op, BinOp::And(_) | BinOp::Or(_))
}

fn is_assignment(op: &BinOp) -> bool {
    matches!(op, BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::BitOrAssign(_))
}

/// Tests, and what only some builds have.
fn is_left_alone(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let tokens = list.tokens.to_string();
            ["test", "shuttle", "debug_assertions"].iter().any(|word| tokens.contains(word))
        }
        meta => meta.path().is_ident("test"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(source: &str) -> (String, Vec<String>) {
        let (text, changes) = rewrite(source, "a.rs", 1, &BTreeSet::new()).expect("it is Rust");
        let kinds =
            changes.iter().map(|change| change.text.split('\t').nth(2).unwrap_or_default().to_owned());
        (text, kinds.collect())
    }

    #[test]
    fn what_is_rewritten_is_rust_with_every_change_in_it() {
        let (text, kinds) = rewritten(
            "fn f(a: u8, b: u8) -> Option<u8> { let mut s = S; if a < b && s.is(a) { s.set(a + b); } \
             match a { 0 => None, _ => Some(a.min(b)) } }",
        );
        syn::parse_file(&text).expect("it is Rust");
        let expected = [
            "returns None",
            "operand always true",
            "operand always true",
            "always true",
            "always false",
            "boundary",
            "no call",
            "the first alone",
            "no arm",
            "the first alone",
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn a_field_by_its_name_alone_is_changed_as_one_with_a_value_is() {
        let (text, kinds) = rewritten("fn f(a: u8) -> S { S { a, b: a + 1, c: 0, d: Vec::new() } }");
        syn::parse_file(&text).expect("it is Rust");
        assert!(text.contains("S { a: (if crate::__survey::on(1) {"), "{text}");
        assert_eq!(kinds, ["no value", "no value", "the first alone"]);
    }

    #[test]
    fn expressions_that_begin_or_end_at_one_place_are_nested() {
        let (text, _) = rewritten("fn f(a: u8, b: u8) -> bool { a - 1 < b + 1 }");
        assert!(text.contains("&(({ let first = a; if crate::__survey::on"), "{text}");
        assert!(text.ends_with("first + 1 } }))))) }"), "{text}");
    }

    #[test]
    fn tests_constants_and_texts_are_left_alone() {
        let source = "const A: bool = 1 < 2; #[cfg(test)] mod t { fn f(a: u8) -> bool { a < 1 } } \
                      impl Debug for S { fn fmt(&self) { self.write(); } } const fn g(a: u8) -> bool { a < 1 }";
        assert_eq!(rewritten(source), (source.to_owned(), Vec::new()));
    }

    #[test]
    fn a_change_that_is_left_out_keeps_its_number() {
        let source = "fn f(a: u8) { g(a); h(a); }";
        let (text, changes) = rewrite(source, "a.rs", 7, &BTreeSet::from([7])).expect("it is Rust");
        assert_eq!(text, "fn f(a: u8) { g(a); if !crate::__survey::on(8) { h(a); } }");
        assert_eq!(changes.iter().map(|change| change.number).collect::<Vec<_>>(), [7, 8]);
    }
}
