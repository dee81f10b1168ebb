//! Which roles may do which statement, over a real socket: those that may make the calls that it takes.
//!
//! The roles of a call stand in one place, the controller's matrix. Here stands which calls a statement or a table
//! takes, and the walk shows that this is so: what a role may follows from the matrix, and nothing else is done or
//! refused. `docs/security.md` has the same rows.

use tidegate_controller::audit::Actor;
use tidegate_controller::config::{Access, Authentication};
use tidegate_controller::identity::Role;
use tidegate_controller::identity::matrix::{Call, allows};
use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;
use tidegate_sql::{Code, Context, Statement, VirtualTable};

use crate::support::{Lab, context};

/// A kind of statement or a table: its name in the document, a text of it, and the calls that it takes.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// Rows, and the name of each value: a kind without a row does not compile.
macro_rules! rows {
    ($rows:ident, $name:ident($of:ty): $($kind:pat => $word:literal, $text:literal, $calls:expr;)*) => {
        const $rows: &[Row] = &[$(($word, $text, &$calls)),*];

        fn $name(of: &$of) -> &'static str {
            match of {
                $($kind => $word,)*
            }
        }
    };
}

rows! { STATEMENTS, kind(Statement):
    Statement::CreateGroup { .. } => "CREATE RESOURCE GROUP", "CREATE RESOURCE GROUP b RU_PER_SEC = 5",
        ["Admin/CreateGroup"];
    Statement::AlterGroup { .. } => "ALTER RESOURCE GROUP", "ALTER RESOURCE GROUP IF EXISTS a RU_PER_SEC = 6",
        ["Admin/GetGroup", "Admin/AlterGroup"];
    Statement::Propose { .. } => "ALTER RESOURCE GROUP .. PROPOSE", "ALTER RESOURCE GROUP a PROPOSE RU_PER_SEC = 9",
        ["Admin/PutProposal"];
    Statement::ShowProposal { .. } => "SHOW RESOURCE GROUP PROPOSAL", "SHOW RESOURCE GROUP PROPOSAL a",
        ["Admin/GetProposal"];
    Statement::ApplyProposal { .. } => "ALTER RESOURCE GROUP .. APPLY PROPOSAL",
        "ALTER RESOURCE GROUP a APPLY PROPOSAL", ["Admin/ApplyProposal"];
    Statement::WithdrawProposal { .. } => "ALTER RESOURCE GROUP .. WITHDRAW PROPOSAL",
        "ALTER RESOURCE GROUP a WITHDRAW PROPOSAL", ["Admin/DeleteProposal"];
    Statement::DropGroup { .. } => "DROP RESOURCE GROUP", "DROP RESOURCE GROUP IF EXISTS b", ["Admin/DeleteGroup"];
    Statement::ShowCreateGroup { .. } => "SHOW CREATE RESOURCE GROUP", "SHOW CREATE RESOURCE GROUP a",
        ["Admin/GetGroup"];
    Statement::ShowGroups => "SHOW RESOURCE GROUPS", "SHOW RESOURCE GROUPS", ["Admin/ListGroups"];
    Statement::SetGroup { .. } => "SET RESOURCE GROUP", "SET RESOURCE GROUP a", ["Admin/GetGroup"];
    Statement::CurrentGroup { .. } => "SELECT CURRENT_RESOURCE_GROUP()", "SELECT CURRENT_RESOURCE_GROUP()", [];
    Statement::Bind { .. } => "ALTER USER", "ALTER USER eve RESOURCE GROUP a", ["Admin/Bind"];
    Statement::AddWatch { .. } => "QUERY WATCH ADD",
        "QUERY WATCH ADD RESOURCE GROUP a ACTION KILL SQL TEXT EXACT TO 'SELECT 1'", ["Statements/AddWatch"];
    Statement::RemoveWatch { .. } => "QUERY WATCH REMOVE", "QUERY WATCH REMOVE 99", ["Statements/RemoveWatch"];
    Statement::RemoveWatches { .. } => "QUERY WATCH REMOVE RESOURCE GROUP",
        "QUERY WATCH REMOVE RESOURCE GROUP a", ["Statements/RemoveWatch"];
    Statement::ResetStatements => "TRUNCATE TABLE tidegate.statements", "TRUNCATE TABLE tidegate.statements",
        ["Statements/ResetStatements"];
    // Only a gateway runs it, as the statement that it holds.
    Statement::ExplainRu(_) => "EXPLAIN RU", "EXPLAIN RU SELECT 1", [];
    // Its tables have rows of their own.
    Statement::Select(_) => "SELECT", "SELECT name FROM information_schema.resource_groups", ["Admin/ListGroups"];
}

rows! { TABLES, table(VirtualTable):
    VirtualTable::ResourceGroups => "information_schema.resource_groups", "", ["Admin/ListGroups"];
    VirtualTable::RunawayWatches => "information_schema.runaway_watches", "", ["Statements/ListWatches"];
    VirtualTable::Statements => "tidegate.statements", "", ["Statements/ListStatements"];
    VirtualTable::Usage => "tidegate.usage", "", ["Admin/Usage"];
    VirtualTable::Runaways => "tidegate.runaways", "", ["Statements/ListRunaways"];
    VirtualTable::Bindings => "tidegate.bindings", "", ["Admin/ListBindings"];
    VirtualTable::Clients => "tidegate.clients", "", ["Admin/ListClients"];
    VirtualTable::Proposals => "tidegate.proposals", "", ["Admin/ListProposals"];
}

/// The other statements of a kind, which take another call.
const OTHERS: [Row; 3] = [
    ("ALTER USER", "ALTER USER eve RESOURCE GROUP default", &["Admin/Unbind"]),
    ("ALTER USER", "ALTER DATABASE shop RESOURCE GROUP a", &["Admin/Bind"]),
    ("ALTER RESOURCE GROUP", "ALTER RESOURCE GROUP a RU_PER_SEC = 7", &["Admin/AlterGroup"]),
];

/// The roles that may make all of these calls.
fn roles(calls: &[&str]) -> Vec<Role> {
    let may = |role: Role, call: &str| allows(Some(role), Call::Grpc(&format!("/tidegate.v1.{call}")));
    Role::ALL.into_iter().filter(|role| calls.iter().all(|call| may(*role, call))).collect()
}

/// All texts, with the calls that they take.
fn texts() -> Vec<(String, &'static [&'static str])> {
    let statements = STATEMENTS.iter().chain(&OTHERS).map(|(word, text, calls)| {
        let statement = Statement::parse(text, SqlDialect::MySql).unwrap().expect(text);
        assert_eq!(kind(&statement), *word, "{text}");
        ((*text).to_owned(), *calls)
    });
    let tables = VirtualTable::ALL.into_iter().map(|of| {
        let row = TABLES.iter().find(|(word, ..)| *word == table(&of)).unwrap();
        assert_eq!(row.0, of.full_name());
        (format!("SELECT * FROM {}", of.full_name()), row.2)
    });
    statements.chain(tables).collect()
}

#[tokio::test]
async fn every_statement_and_table_is_for_the_roles_that_may_make_its_calls() {
    let access = Access { authentication: Some(Authentication::Required), ..Access::default() };
    let lab = Lab::asking(access).await;
    let (service, actor) = (lab.running.service(), Actor::new(None, "test"));
    let group = v1::Group { name: "a".into(), ru_per_sec: "5".into(), ..v1::Group::default() };
    service.definitions().create_group(&actor, &group, false).unwrap();
    // A group that a tenant does not see is not there for it, so that an IF EXISTS has nothing to ask for.
    service.definitions().bind(&actor, "acme", "", "a").unwrap();
    let (mut wrong, mut cells) = (Vec::new(), 0);
    for role in Role::ALL {
        let tenant = if role == Role::Tenant { "acme".to_owned() } else { String::new() };
        let (name, role_name) = (role.name().to_owned(), role.name().to_owned());
        let wish = v1::CreateTokenRequest { name, role: role_name, tenant, ..Default::default() };
        let (_, secret) = service.tokens().create(&actor, &wish).unwrap();
        let token = Some(format!("Bearer {}", secret.reveal()).parse().unwrap());
        let context = Context { token, ..context() };
        for (text, calls) in texts() {
            let answer = lab.send_as(&context, &text).await;
            let denied = answer.as_ref().is_err_and(|error| error.code() == Code::DENIED);
            if denied == roles(calls).contains(&role) {
                wrong.push(format!("{role}: {text}: {answer:?}"));
            }
            if let (true, Err(error)) = (denied, &answer) {
                assert!(error.to_string().contains("it needs the role"), "{role}: {text}: {error}");
            }
            cells += 1;
        }
    }
    assert!(wrong.is_empty(), "of {cells}: {wrong:#?}");
    assert_eq!(cells, Role::ALL.len() * (STATEMENTS.len() + OTHERS.len() + VirtualTable::ALL.len()));
}

#[test]
fn statements_of_one_kind_are_for_the_same_roles() {
    for (word, text, calls) in OTHERS {
        let row = STATEMENTS.iter().find(|(of, ..)| *of == word).unwrap();
        assert_eq!(roles(calls), roles(row.2), "{text}");
    }
}

#[test]
fn the_rows_of_the_document_are_those_in_force() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
    let text = std::fs::read_to_string(document).unwrap();
    let mut wrong = Vec::new();
    for (word, _, calls) in STATEMENTS.iter().filter(|(word, ..)| *word != "SELECT").chain(TABLES) {
        let roles: Vec<&str> = roles(calls).into_iter().map(Role::name).collect();
        let cell = format!("| {} |", roles.join(", "));
        let named = text.lines().filter(|line| line.starts_with('|') && line.contains(&format!("`{word}`")));
        let lines: Vec<&str> = named.collect();
        if !matches!(lines.as_slice(), [line] if line.starts_with(&cell)) {
            wrong.push(format!("{word} belongs in the row of {cell} alone"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
