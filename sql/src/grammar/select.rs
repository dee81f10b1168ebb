//! Queries, and other statements that name a table of ours.
//!
//! A query is ours when every table it reads is ours. The parser of the dialect finds these tables, so that a name in a
//! string, an alias or a column of that name does not count. Other statements that name a table of ours are refused,
//! since the tables can only be read; `TRUNCATE` of the statements resets their counts.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{Expr, ObjectName, Query, Visit as _, Visitor};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::cursor::{Cursor, is_keyword};
use crate::error::{SqlError, cut};
use crate::statement::Statement;
use crate::tables::{Select, VirtualTable};
use crate::tokens::rules;

/// Most tokens of a query of ours; the parser's tree is as deep as it is long, and is walked recursively.
const MAX_TOKENS: usize = 2_048;
/// Deepest nesting of a query of ours.
const MAX_NESTING: usize = 50;
/// The function that names the session's group.
pub(crate) const FUNCTION: &str = "CURRENT_RESOURCE_GROUP";

/// A statement that none of the other families know.
pub(super) fn statement(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    let query = cursor.sees("SELECT") || cursor.sees("WITH") || cursor.peek() == Some(&Token::LParen);
    if !query {
        return change(cursor);
    }
    if let Some(column) = current_group(cursor) {
        return Ok(Some(Statement::CurrentGroup { column }));
    }
    if !mentions(cursor) {
        return Ok(None);
    }
    if cursor.rest().count() > MAX_TOKENS {
        let message =
            format!("a query of tidegate's tables has at most {MAX_TOKENS} words and signs; shorten it");
        return if reads(cursor) { Err(cursor.error(&message)) } else { Ok(None) };
    }
    let tokens: Vec<Token> = cursor.rest().cloned().collect();
    let mut parser = Parser::new(rules(cursor.dialect)).with_recursion_limit(MAX_NESTING).with_tokens(tokens);
    let parsed = parser.parse_query().and_then(|query| {
        if parser.peek_token_ref().token == Token::EOF {
            Ok(query)
        } else {
            parser.expected_ref("the end", parser.peek_token_ref())
        }
    });
    let query = match parsed {
        Ok(query) => query,
        // Text that the parser does not know may still be the database's.
        Err(_) if !reads(cursor) => return Ok(None),
        Err(error) => return Err(cursor.error(&format!("cannot read this query: {error}"))),
    };
    judge(cursor, &query)
}

/// Whether the query is ours or the database's.
fn judge(cursor: &Cursor<'_>, query: &Query) -> Result<Option<Statement>, SqlError> {
    let mut seen = Seen::default();
    // The visitor never breaks.
    let _ = query.visit(&mut seen);
    let theirs = seen.theirs.iter().find(|name| !seen.defined.contains(*name));
    match (seen.ours.first(), theirs) {
        (Some(ours), Some(theirs)) => {
            Err(SqlError::Mixed { ours: ours.full_name().to_owned(), theirs: cut(theirs) })
        }
        (None, Some(theirs)) if seen.function => {
            Err(SqlError::Mixed { ours: format!("{FUNCTION}()"), theirs: cut(theirs) })
        }
        (None, None) if seen.function => ours_alone(cursor, Vec::new()),
        (None, _) => Ok(None),
        (Some(_), None) => ours_alone(cursor, seen.ours.into_iter().collect()),
    }
}

/// A query of these tables of ours, or of none, which tidegate evaluates.
fn ours_alone(cursor: &Cursor<'_>, tables: Vec<VirtualTable>) -> Result<Option<Statement>, SqlError> {
    if cursor.rest().any(|token| matches!(token, Token::Placeholder(_) | Token::Question)) {
        let instead = "write the values into the text";
        return Err(SqlError::unsupported("a parameter in a query that tidegate answers", instead));
    }
    Ok(Some(Statement::Select(Select::new(&without_dual(cursor.tokens()), tables, cursor.dialect))))
}

/// The tokens without `FROM DUAL`, which has one row and is no table, where no other table stands beside it.
fn without_dual<'t>(tokens: &[&'t TokenWithSpan]) -> Vec<&'t TokenWithSpan> {
    const BEHIND: [&str; 6] = ["WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    loop {
        rest = match rest {
            [from, dual, behind @ ..]
                if is_keyword(&from.token, "FROM")
                    && is_keyword(&dual.token, "DUAL")
                    && behind.first().is_none_or(|next| {
                        next.token == Token::RParen || BEHIND.iter().any(|word| is_keyword(&next.token, word))
                    }) =>
            {
                behind
            }
            [token, behind @ ..] => {
                kept.push(*token);
                behind
            }
            [] => return kept,
        };
    }
}

/// `SELECT CURRENT_RESOURCE_GROUP() [[AS] name] [FROM DUAL]`, and nothing else: the name of its column.
fn current_group(cursor: &Cursor<'_>) -> Option<String> {
    let mut cursor = cursor.clone();
    if !cursor.take(&["SELECT"]) {
        return None;
    }
    let Some(Token::Word(Word { value, quote_style: None, .. })) = cursor.peek() else { return None };
    if !value.eq_ignore_ascii_case(FUNCTION) {
        return None;
    }
    let mut column = format!("{value}()");
    cursor.skip();
    if !cursor.take_token(&Token::LParen) || !cursor.take_token(&Token::RParen) {
        return None;
    }
    let named = cursor.take(&["AS"]);
    if named || (cursor.peek().is_some() && !cursor.sees("FROM")) {
        column = match cursor.name("a name") {
            Ok(name) => name.text,
            Err(_) => cursor.string("a name").ok()?.to_owned(),
        };
    }
    cursor.take(&["FROM", "DUAL"]);
    cursor.end().ok().map(|()| column)
}

/// Whether the tokens name a table or the function of ours, wherever.
fn mentions(cursor: &Cursor<'_>) -> bool {
    let tokens: Vec<&Token> = cursor.rest().collect();
    tokens.windows(2).any(|pair| {
        matches!(pair, [Token::Word(word), Token::LParen] if word.value.eq_ignore_ascii_case(FUNCTION))
    }) || tokens.windows(3).any(|three| table(three).is_some())
}

/// Whether a table of ours stands where only a table stands.
fn reads(cursor: &Cursor<'_>) -> bool {
    let tokens: Vec<&Token> = cursor.rest().collect();
    tokens.windows(4).any(|four| match four {
        [before, name @ ..] => {
            (is_keyword(before, "FROM") || is_keyword(before, "JOIN")) && table(name).is_some()
        }
        [] => false,
    })
}

/// The table that `schema . name` is.
fn table(tokens: &[&Token]) -> Option<VirtualTable> {
    match tokens {
        [Token::Word(schema), Token::Period, Token::Word(name)] => {
            VirtualTable::named(&schema.value, &name.value)
        }
        _ => None,
    }
}

/// Statements that are no queries: changes to tables of ours.
fn change(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    let empties = cursor.take(&["TRUNCATE"]);
    let changes = empties
        || cursor.take(&["INSERT", "INTO"])
        || cursor.take(&["REPLACE", "INTO"])
        || cursor.take(&["DELETE", "FROM"])
        || cursor.take(&["UPDATE"]);
    if !changes {
        return Ok(None);
    }
    if empties {
        cursor.take(&["TABLE"]);
    }
    let name: Vec<&Token> = cursor.rest().take(3).collect();
    let Some(table) = table(&name) else { return Ok(None) };
    if !empties || table != VirtualTable::Statements {
        let instead = "TRUNCATE TABLE tidegate.statements resets the counts of statements; all else is changed \
                       by statements such as ALTER RESOURCE GROUP";
        return Err(SqlError::unsupported(format!("a change of {}", table.full_name()), instead));
    }
    (0..3).for_each(|_| cursor.skip());
    cursor.end()?;
    Ok(Some(Statement::ResetStatements))
}

/// What a query reads.
#[derive(Default)]
struct Seen {
    ours: BTreeSet<VirtualTable>,
    /// As written, in lower case.
    theirs: BTreeSet<String>,
    /// Names of its WITH clauses.
    defined: BTreeSet<String>,
    function: bool,
}

impl Visitor for Seen {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let defined = query.with.iter().flat_map(|with| &with.cte_tables);
        self.defined.extend(defined.map(|table| table.alias.name.value.to_lowercase()));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let parts: Vec<&str> =
            relation.0.iter().filter_map(|part| part.as_ident()).map(|name| name.value.as_str()).collect();
        let ours = match parts.as_slice() {
            [schema, name] => VirtualTable::named(schema, name),
            _ => None,
        };
        match ours {
            Some(table) => drop(self.ours.insert(table)),
            None if parts.len() == 1 && parts.iter().all(|name| name.eq_ignore_ascii_case("DUAL")) => {}
            None => drop(self.theirs.insert(parts.join(".").to_lowercase())),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expression
            && let [name] = call.name.0.as_slice()
        {
            self.function |= name.as_ident().is_some_and(|name| name.value.eq_ignore_ascii_case(FUNCTION));
        }
        ControlFlow::Continue(())
    }
}
