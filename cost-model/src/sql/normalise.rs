//! Normalising a parsed statement: literals to `?`, lists and rows to their first entry, and the tables it names.
//!
//! In: the syntax tree of a text whose literals are stand-ins. Out: the same tree, so that its printed form is the
//! template, and table names in the order of appearance. Most lists are collapsed by the scanner already; this
//! finishes what only the tree shows (`VALUES ROW(1), ROW(2)`, `IN (- 1, 2)`).

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, ObjectName, Query, SetExpr, Statement, TableObject, UnaryOperator, Value, ValueWithSpan, VisitMut,
    VisitorMut,
};

/// Most tables remembered per template. Further ones are left out; the template's text still has them.
pub(super) const MAX_TABLES: usize = 32;

/// Normalises in place and gives the tables named, without common table expressions and duplicates.
pub(super) fn normalise(statements: &mut Vec<Statement>) -> Vec<String> {
    let mut normaliser = Normaliser::default();
    let ControlFlow::Continue(()) = statements.visit(&mut normaliser);
    let mut tables = normaliser.tables;
    tables.truncate(MAX_TABLES);
    tables
}

#[derive(Default)]
struct Normaliser {
    tables: Vec<String>,
    /// The queries around this place, the outermost first.
    around: Vec<Around>,
}

/// A query whose parts are being visited: those before its body first, in the order of their names.
struct Around {
    named: Vec<String>,
    /// So many of the names are known at this place: a query does not know its own name, nor later ones, unless the
    /// whole is recursive.
    known: usize,
}

impl Around {
    fn names(&self, table: &str) -> bool {
        self.named.iter().take(self.known).any(|name| name == table)
    }
}

impl Normaliser {
    fn name(&mut self, table: String) {
        if !self.tables.contains(&table) {
            self.tables.push(table);
        }
    }
}

impl VisitorMut for Normaliser {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let with = query.with.as_ref();
        let parts = with.map(|with| with.cte_tables.as_slice()).unwrap_or_default();
        let named: Vec<_> = parts.iter().map(|part| part.alias.name.to_string()).collect();
        let known = if with.is_some_and(|with| with.recursive) { named.len() } else { 0 };
        self.around.push(Around { named, known });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if let SetExpr::Values(values) = query.body.as_mut() {
            values.rows.truncate(1);
        }
        self.around.pop();
        if let Some(outer) = self.around.last_mut() {
            // Behind the last of them are those of its body.
            outer.known += 1;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<Self::Break> {
        // What is inserted into is a table, whatever queries have its name.
        if let Statement::Insert(insert) = statement
            && let TableObject::TableName(table) = &insert.table
        {
            self.name(table.to_string());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Self::Break> {
        let name = relation.to_string();
        if !self.around.iter().any(|query| query.names(&name)) {
            self.name(name);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Self::Break> {
        value.value = Value::Placeholder("?".to_owned());
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: inner }
                if is_value(inner) =>
            {
                let inner = std::mem::replace(inner.as_mut(), Expr::Value(Value::Null.into()));
                *expr = inner;
            }
            Expr::InList { list, .. } if list.iter().all(is_constant) => list.truncate(1),
            Expr::Array(array) if array.elem.iter().all(is_constant) => array.elem.truncate(1),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

const fn is_value(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(_))
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Tuple(parts) => parts.iter().all(is_value),
        other => is_value(other),
    }
}
