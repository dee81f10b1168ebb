//! Passwords and literals: none is in any log, page, table or file of tidegate's, whatever is logged.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use tidegate_test_servers::ROOT;

use super::stage::Stage;
use crate::support::{err, eventually, run};

/// All that is secret has this in it, or is this.
const SECRET: &str = "canary";
const NUMBER: &str = "987654321012345";
const ANN: (&str, &str) = ("ann", "canary-login");

/// Literals where clients of PostgreSQL have them.
const POSTGRES: &str = r#"
create table t (a text, b int);
select 'canary-literal', 987654321012345;
select 1/0, 'canary-error';
selec 'canary-syntax';
select 'canary-typed'::int;
select $$canary-dollar$$, $x$canary-tag$x$, E'canary\x41', U&'canary', B'1', x'63616e617279';
/* canary-comment */ select 1 -- canary-comment
;
prepare p as select $1::text; execute p('canary-execute');
insert into t values ('canary-insert', 987654321012345 % 1000);
create user eve password 'canary-user';
alter user ann password 'canary-login';
set my.own = 'canary-set'; show my.own;
do $$ begin raise warning 'canary-warning'; end $$;
notify news, 'canary-notify';
copy t from stdin;
canary-copy	1
\.
copy t from stdin;
canary-copy	canary-number
\.
copy (select 'canary-out') to stdout;
begin; declare c cursor for select 'canary-cursor'; fetch c; commit;
select 'canary-open
;
"#;

/// And those of MySQL.
const MYSQL: &str = r#"
create table t (a text, b bigint);
select 'canary-literal', 987654321012345;
selec 'canary-syntax';
select "canary-double", _utf8mb4'canary-set', N'canary-nation', x'63616e617279';
/* canary-comment */ select 1 -- canary-comment
;
prepare s from 'select concat(?, "canary-inner")'; set @a = 'canary-variable'; execute s using @a;
insert into t values ('canary-insert', 987654321012345);
insert into t values ('canary-insert', 'canary-number');
set password = password('canary-login');
create user eve identified by 'canary-user';
signal sqlstate '45000' set message_text = 'canary-signal';
select 'canary-open
;
"#;

/// Of an admin, in tidegate's own language.
const ADMIN: &str = "
create resource group strict ru_per_sec = 100000
    query_limit = (exec_elapsed = '200ms', action = kill, watch = exact duration '10m');
query watch add resource group strict sql text exact to 'select ''canary-watched''';
query watch add resource group strict sql text similar to 'select ''canary-alike'', b from t where b = 1';
query watch add resource group strict sql text exact to 'canary-one' 'canary-two';
create resource group 'canary-group' ru_per_sec = ;
set resource group 'canary-nowhere';
explain ru select 'canary-explained', count(*) from t;
alter user ann resource group strict;
";

/// Forms in which a password may appear: as it is, as a list of bytes, as hexadecimal digits.
fn secrets() -> Vec<String> {
    let listed: Vec<String> = SECRET.bytes().map(|byte| byte.to_string()).collect();
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let upstream = [ROOT.1.to_owned(), ROOT.1.replace(' ', "%20"), ROOT.1.replace(' ', "+")];
    [SECRET.to_owned(), NUMBER.to_owned(), listed.join(", "), hex].into_iter().chain(upstream).collect()
}

/// None of them is in there.
#[track_caller]
fn shows_nothing(place: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    for secret in secrets() {
        if let Some(at) = text.find(&secret) {
            let near: String = text[..at].chars().rev().take(200).collect();
            let near: String = near.chars().rev().chain(text[at..].chars().take(100)).collect();
            panic!("{place} tells {secret:?}: {near}");
        }
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![(path.display().to_string(), fs::read(&path).unwrap())]
        }
    };
    entries.flat_map(read).collect()
}

#[test]
fn no_password_and_no_literal_is_told_anywhere() {
    let mut stage = Stage::new(ANN.1, "trace");
    eventually("the first lease is there", || stage.mysql(ANN, "select 7;") == "7\n");
    // Ann's file goes to the server through the gateway.
    let infile = stage.gateway.folder.path().join("infile");
    writeln!(fs::File::create(&infile).unwrap(), "canary-file\tcanary-number").unwrap();
    let load = format!("load data local infile '{}' into table t;", infile.display());
    let seen = stage.psql(ANN, POSTGRES) + &stage.mysql(ANN, MYSQL) + &stage.mysql(ANN, &load);
    fs::remove_file(infile).unwrap();
    for heard in ["canary-literal", "canary-syntax", "canary-number", "canary-inner", "canary-signal"] {
        assert!(seen.contains(heard), "{heard}: {seen}");
    }
    // A password in the clear, which PostgreSQL asks for when its configuration says so.
    let clear = "copy (values ('host all ann all password'), ('host all all all scram-sha-256')) to program \
                 'cat > pg_hba.conf'; select pg_reload_conf();";
    stage.psql(ROOT, clear);
    eventually("it is let in", || stage.psql(ANN, "select 1;") == "1\n");
    for wrong in [("ann", "canary-wrong"), ("nobody", "canary-wrong")] {
        let told = stage.psql(wrong, "select 1;") + &stage.mysql(wrong, "select 1;");
        assert!(told.contains("password authentication failed") && told.contains("Access denied"), "{told}");
    }
    // Ended by the rule, refused by the list; over both protocols.
    stage.psql(ROOT, ADMIN);
    stage.mysql(ROOT, ADMIN);
    let group = "select current_resource_group();";
    eventually("ann is in the group", || stage.mysql(ANN, group) == "strict\n");
    eventually("a runaway is killed", || {
        let kill = "select 'canary-kill', count(*) from generate_series(1, 100000000);";
        stage.psql(ANN, kill).contains("runaway")
    });
    eventually("a runaway is killed", || {
        stage.mysql(ANN, "select 'canary-kill', benchmark(300000000, md5('canary'));").contains("runaway")
    });
    eventually("a watched statement is refused", || {
        stage.psql(ANN, "select 'canary-watched';").contains("watch")
            && stage.mysql(ANN, "select 'canary-watched';").contains("watch")
    });
    eventually("they are counted", || {
        let counted = "select sum(repeats) from tidegate.runaways;";
        stage.psql(ROOT, counted).trim().parse().is_ok_and(|count: u32| count >= 4)
    });
    let metrics = stage.gateway.metrics();
    assert!(metrics.contains("tidegate_gateway_statements_total"));
    shows_nothing("the page of metrics", metrics.as_bytes());
    // Databases that are away.
    stage.postgres.kill();
    stage.mariadb.kill();
    let told = stage.psql(ANN, "select 1;") + &stage.mysql(ANN, "select 1;");
    assert!(told.matches("cannot reach the database").count() == 2, "{told}");
    shows_nothing("what a client is told of a database that is away", told.as_bytes());
    for table in ["tidegate.statements", "tidegate.runaways", "information_schema.runaway_watches"] {
        let rows = || stage.controller.ok(&["sql", &format!("select * from {table}")]);
        // Gateways report in their own time.
        eventually(table, || rows().lines().count() > 2);
        shows_nothing(table, rows().as_bytes());
    }
    shows_nothing("the audit log", stage.controller.ok(&["audit"]).as_bytes());
    let Stage { controller, gateway, .. } = stage;
    gateway.terminate();
    let folder = gateway.folder.path().to_owned();
    fs::remove_file(folder.join("gateway.toml")).unwrap();
    // The store and the journal as they are while both run, and what all of it logged.
    for (name, bytes) in files(controller.data()) {
        shows_nothing(&name, &bytes);
    }
    for (name, bytes) in files(&folder.join("journal")) {
        shows_nothing(&name, &bytes);
    }
    let (status, log, printed) = gateway.ended();
    assert_eq!(status, Some(0), "{printed}");
    for level in ["TRACE", "DEBUG", "WARN"] {
        assert!(log.contains(level), "the log is not as verbose as it can be: no {level}");
    }
    shows_nothing("the gateway's log", log.as_bytes());
    shows_nothing("the gateway's output", printed.as_bytes());
}

#[test]
fn settings_that_are_wrong_are_told_without_their_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let urls = [
        "mysql://gate:canary@host:99999",
        "mysql://gate:canary@",
        "mysql://gate:canary:host:3306",
        "mysql//gate:canary@host",
        "redis://gate:canary@host",
        "mysql://gate:canary",
        "postgres://gate@host?password=canary",
        "mysql://gate:12?canary@host",
        "postgres://host?sslmode=require&sslpassword=canary",
        "mysql://gate:canary@[::1",
        "postgres:///?socket=/a&tls=require&password=canary",
    ];
    for url in urls {
        let output = run(&["gateway", "--listen", "127.0.0.1:0", "--upstream", url]);
        assert_eq!(output.status.code(), Some(2), "{url}");
        shows_nothing(url, err(&output).as_bytes());
        fs::write(&file, format!("upstream = [\"{url}\"]\n")).unwrap();
        let output = run(&["gateway", "--config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{url}");
        shows_nothing(url, err(&output).as_bytes());
    }
    for text in [
        "upstream = \"mysql://gate:canary@host\"",
        "upstream = [\"mysql://gate:canary@host\"",
        "upstream = [mysql://gate:canary@host]",
        "upstreams = [\"mysql://gate:canary@host\"]",
        "max_wait = \"mysql://gate:canary@host\"",
        "threads = \"mysql://gate:canary@host\"",
        "listen = [\"mysql://gate:canary@host\"]",
        "metrics = \"mysql://gate:canary@host\"",
        "upstream = [\"mysql://gate:canary@host\", 3]",
    ] {
        fs::write(&file, text).unwrap();
        let output = run(&["gateway", "--config", file.to_str().unwrap()]);
        let told = err(&output);
        assert!(output.status.code() == Some(2) && told.contains("line 1"), "{text}: {told}");
        shows_nothing(text, told.as_bytes());
    }
}
