//! Drivers and tools of other projects: each prints what it sees of the server, and then of the gateway.

use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::task::block_in_place;

/// Where `./tests/run` installs packages of PyPI.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/python");
/// Where Debian keeps libraries of Java.
const JARS: &str = "/usr/share/java";

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers")
}

/// A program under Debian's Python, which has Debian's drivers.
pub(crate) fn python(program: &str) -> Command {
    let mut python = Command::new("/usr/bin/python3");
    python.arg(folder().join(program));
    python
}

/// The same with this package of PyPI.
pub(crate) fn python_with(program: &str, package: &str) -> Command {
    let is_there = Path::new(PACKAGES).join(package).is_dir();
    assert!(is_there, "{package} is not in {PACKAGES}; ./tests/run installs it");
    let mut python = python(program);
    // Beside the program are others that have the names of packages.
    python.env("PYTHONPATH", PACKAGES).env("PYTHONSAFEPATH", "1");
    python
}

fn java(protocol: &str, jar: &str) -> Command {
    let mut java = Command::new("java");
    java.args([
        "-Xshare:auto",
        "-XX:TieredStopAtLevel=1",
        "-Dfile.encoding=UTF-8",
        "-Dstdout.encoding=UTF-8",
        "-cp",
    ]);
    java.arg(Path::new(JARS).join(jar)).arg(folder().join("Jdbc.java")).arg(protocol);
    java
}

pub(crate) fn go(program: &str) -> Command {
    let of = |arguments: [&str; 2]| {
        let mut go = Command::new("go");
        go.current_dir(folder().join("go")).args(arguments);
        go
    };
    // First, as downloads would otherwise be reported in the program's output.
    output(of(["mod", "download"]));
    of(["run", program])
}

/// The server that authenticates with `caching_sha2_password`, built to `place`.
pub(crate) fn mysqld(place: &Path) -> Command {
    let mut build = Command::new("go");
    build.current_dir(folder().join("mysqld")).args(["build", "-o"]).arg(place).arg(".");
    output(build);
    Command::new(place)
}

/// What it prints, errors behind.
pub(crate) fn output(mut command: Command) -> String {
    let output = command.env("LC_ALL", "C.UTF-8").output();
    let output = output.unwrap_or_else(|error| {
        panic!("{:?}: {error}; ./tests/run installs what is absent", command.get_program())
    });
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// A command for the server at `port`.
fn at(port: u16, mut command: Command) -> Command {
    command.arg(port.to_string());
    command
}

/// Runs it past the gateway and through it.
pub(crate) fn same(direct: u16, through: u16, least: usize, command: impl Fn() -> Command) {
    let (direct, through) =
        block_in_place(|| (output(at(direct, command())), output(at(through, command()))));
    let lines = direct.lines().count();
    assert!(lines >= least, "{lines} lines: {direct}");
    for (line, (direct, through)) in direct.lines().zip(through.lines()).enumerate() {
        assert_eq!(through, direct, "line {line} of {:?}", command());
    }
    let more =
        |one: &str| one.lines().skip(lines.min(through.lines().count())).collect::<Vec<_>>().join("\n");
    assert_eq!(more(&through), more(&direct), "behind the same lines of {:?}", command());
}

/// All drivers of PostgreSQL that Debian and Go have.
pub(crate) fn of_postgresql(direct: u16, through: u16) {
    same(direct, through, 20, || python("postgres.py"));
    same(direct, through, 45, || java("postgres", "postgresql.jar"));
    same(direct, through, 80, || go("./postgres"));
}

/// And those of MySQL.
pub(crate) fn of_mysql(direct: u16, through: u16) {
    same(direct, through, 17, || python("mysql.py"));
    same(direct, through, 85, || java("mysql", "mariadb-java-client.jar"));
    same(direct, through, 60, || go("./mysql"));
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_of_postgresql_see_the_same() {
    let stage = crate::postgres::stage::Stage::new().await;
    of_postgresql(stage.postgres.port(), stage.port());
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_of_mysql_see_the_same() {
    let stage = crate::mysql::stage::Stage::new().await;
    of_mysql(stage.server.port(), stage.port());
}

/// The lines of a driver that explains: what it did, and whether parts and total were as they must be.
fn explains(port: u16, ways: &[&str], command: Command) {
    let said = block_in_place(|| output(at(port, command)));
    let expected: Vec<String> =
        ways.iter().map(|way| format!("{way}: cpu read write network total, 7 rows")).collect();
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_of_postgresql_are_told_what_a_statement_cost() {
    let stage = crate::postgres::stage::Stage::new().await;
    let modes = ["cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"];
    explains(stage.port(), &modes, go("./explain"));
    let modes = [
        "simple",
        "extended",
        "extendedForPrepared",
        "extendedCacheEverything",
        "in a transaction",
        "in portions",
    ];
    explains(stage.port(), &modes, java("explain", "postgresql.jar"));
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_of_mysql_are_told_what_a_statement_cost() {
    let stage = crate::mysql::stage::Stage::new().await;
    // Every login waits for the group's first lease.
    drop(stage.ann().await);
    let ways = ["text", "prepared", "prepared at once", "in portions"];
    explains(stage.port(), &ways, java("explain-mysql", "mariadb-java-client.jar"));
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_of_mysql_prepare_what_the_gateway_answers() {
    let stage = crate::mysql::stage::Stage::new().await;
    let told = |command| block_in_place(|| output(at(stage.port(), command)));
    let ways = ["text", "prepared", "prepared at once", "in portions"];
    let lines = ways.map(|way| format!("{way}: default default 1227\n")).concat();
    assert_eq!(told(java("ours-mysql", "mariadb-java-client.jar")), lines);
    assert_eq!(told(go("./ours")), "text: default\nprepared: default\nprepared: default\nrefused: true\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn load_generators_run_through_it() {
    let stage = crate::postgres::stage::Stage::new().await;
    let pgbench = |options: &[&str]| {
        let mut pgbench = stage.postgres.program("pgbench");
        pgbench.env("PGDATABASE", "shop").env("PGPASSWORD", "ann").args(["-h", "127.0.0.1", "-U", "ann"]);
        pgbench.args(["-p", &stage.port().to_string()]).args(options);
        let done = block_in_place(|| pgbench.output()).unwrap();
        assert!(done.status.success(), "{options:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    pgbench(&["-i", "-q"]);
    for mode in ["simple", "extended", "prepared"] {
        let report = pgbench(&["-n", "-M", mode, "-c", "8", "-t", "25"]);
        assert!(report.contains("transactions actually processed: 200/200"), "{mode}: {report}");
    }
    let stage = crate::mysql::stage::Stage::new().await;
    let mut slap = Command::new("mariadb-slap");
    slap.args([
        "--no-defaults",
        "--protocol=tcp",
        "-h127.0.0.1",
        "-uann",
        "-pann",
        "--create-schema=shop",
        "--silent",
    ]);
    slap.args(["--auto-generate-sql", "--auto-generate-sql-load-type=mixed", "--concurrency=8"]);
    slap.args(["--number-of-queries=400", &format!("-P{}", stage.port())]);
    let done = block_in_place(|| slap.output()).unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && !said.contains("ERROR"), "{said}");
}
