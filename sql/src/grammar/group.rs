//! CREATE, ALTER and DROP RESOURCE GROUP, and what is done with a proposal of one.

use tidegate_proto::v1;

use super::options::options;
use crate::cursor::Cursor;
use crate::error::SqlError;
use crate::statement::Statement;

/// Behind `CREATE RESOURCE GROUP`.
pub(super) fn create(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let if_not_exists = cursor.take(&["IF", "NOT", "EXISTS"]);
    let name = cursor.group()?;
    let (mut group, fields) = options(cursor)?;
    group.name = name;
    if !fields.contains(&"ru_per_sec") {
        // TiDB refuses it as well; a group without a cap should be said, and not come of forgetting.
        return Err(cursor.expected("RU_PER_SEC = a number, or RU_PER_SEC = UNLIMITED"));
    }
    Ok(Statement::CreateGroup { group, if_not_exists })
}

/// Behind `ALTER RESOURCE GROUP`.
pub(super) fn alter(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let if_exists = cursor.take(&["IF", "EXISTS"]);
    let name = cursor.group()?;
    for word in ["PROPOSE", "APPLY", "WITHDRAW"] {
        if if_exists && cursor.sees(word) {
            return Err(cursor.error("a proposal is of a group that exists; leave IF EXISTS out"));
        }
    }
    if cursor.take(&["PROPOSE"]) {
        let (group, fields) = changes(cursor, name)?;
        return Ok(Statement::Propose { group, fields });
    }
    let applies = cursor.take(&["APPLY"]);
    if applies || cursor.take(&["WITHDRAW"]) {
        cursor.expect(&["PROPOSAL"])?;
        cursor.end()?;
        let statement =
            if applies { Statement::ApplyProposal { name } } else { Statement::WithdrawProposal { name } };
        return Ok(statement);
    }
    let (group, fields) = changes(cursor, name)?;
    Ok(Statement::AlterGroup { group, fields, if_exists })
}

/// The options of an alteration, to the end of the statement.
fn changes(cursor: &mut Cursor<'_>, name: String) -> Result<(Box<v1::Group>, Vec<&'static str>), SqlError> {
    let (mut group, fields) = options(cursor)?;
    group.name = name;
    // Another way to burst removes the limit, which the change says by name.
    if fields.contains(&"burst_ru_per_sec") && group.burst_ru_per_sec.is_empty() {
        "default".clone_into(&mut group.burst_ru_per_sec);
    }
    Ok((group, fields))
}

/// Behind `DROP RESOURCE GROUP`.
pub(super) fn drop(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let if_exists = cursor.take(&["IF", "EXISTS"]);
    let name = cursor.group()?;
    cursor.end()?;
    Ok(Statement::DropGroup { name, if_exists })
}
