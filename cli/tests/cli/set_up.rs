//! The commands of docs/security.md that set up three machines, run as they stand but for the numbers of ports.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::support::{err, eventually, out, tidegate};

/// The page, and what its section has to hold.
const PAGE: &str = include_str!("../../../docs/security.md");
const COMMANDS: usize = 10;
/// Each with an address of a machine of its own before it; a port of a database that is not needed stays as it is.
const PORTS: [&str; 4] = ["127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.3:6432", "127.0.0.3:7431"];

/// The blocks of commands below `## Set-up`.
fn blocks() -> Vec<String> {
    let (_, section) = PAGE.split_once("\n## Set-up\n").expect("the page has the section");
    let (section, _) = section.split_once("\n## ").expect("another follows");
    let blocks = section.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// The lines, with those that a backslash goes on with.
fn commands(block: &str) -> usize {
    block.replace("\\\n", " ").lines().filter(|line| !line.trim().is_empty()).count()
}

/// Other ports, which are free, in the place of those of the page.
fn with_free_ports(blocks: Vec<String>) -> (Vec<String>, Vec<String>) {
    let free = PORTS.map(|address| {
        let (host, _) = address.split_once(':').unwrap();
        TcpListener::bind((host, 0)).unwrap()
    });
    let free: Vec<String> = free.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    let replaced = |block: String| {
        PORTS.iter().zip(&free).fold(block, |block, (port, free)| {
            assert!(PAGE.contains(port), "{port} is no longer in the page");
            block.replace(port, free)
        })
    };
    (blocks.into_iter().map(replaced).collect(), free)
}

/// The same commands, with a pause after the one that starts the controller until it answers: a node that begins to
/// connect at once waits for 5 s, which a busy machine may take.
fn at_a_person_s_pace(block: &str) -> String {
    let look = "tidegate status --ca certs/ca.pem --cert certs/ann.pem --key certs/ann-key.pem --endpoint";
    let (before, rest) = block.split_once("tidegate controller ").expect("a controller is started");
    let (controller, after) = rest.split_once(" &\n").expect("it stays in the background");
    let (_, from) = controller.split_once("--listen ").expect("it has an address");
    let address = from.split(' ').next().unwrap_or_default();
    let wait =
        format!("timeout 60 bash -c 'until {look} https://{address}; do sleep 0.1; done' >/dev/null 2>&1");
    format!("{before}tidegate controller {controller} &\n{wait}\n{after}")
}

/// A shell for such commands, in this folder, which finds the binary of these tests.
fn shell(folder: &Path, script: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().unwrap().to_str().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash");
    for (name, value) in tidegate().get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.args(["-euc", script]).env("PATH", format!("{binary}:{path}")).current_dir(folder);
    shell.stdin(Stdio::null());
    shell
}

fn says(folder: &Path, script: &str) -> Output {
    shell(folder, script).output().unwrap()
}

/// The machines, which stop when this is dropped.
struct Machines(Child);

impl Machines {
    /// Runs the ten commands; back when the last one has ended, with what all of them printed until then.
    fn set_up(folder: &Path, block: &str) -> (Self, String) {
        // The shell stays until its input ends, and takes what it began with it.
        let stays = "echo 'all ten are done'; cat >/dev/null";
        let script = format!("trap 'kill $(jobs -p)' EXIT\n{}\n{stays}", at_a_person_s_pace(block));
        let log = fs::File::create(folder.join("log")).unwrap();
        let mut shell = shell(folder, &script);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut machines = Self(shell.spawn().unwrap());
        let (told, tells) = mpsc::channel();
        let output = machines.0.stdout.take().unwrap();
        thread::spawn(move || {
            use std::io::BufRead as _;
            for line in std::io::BufReader::new(output).lines().map_while(Result::ok) {
                let _ = told.send(line);
            }
        });
        let mut printed = String::new();
        // Ends when the shell does, too.
        while let Ok(line) = tells.recv() {
            if line == "all ten are done" {
                return (machines, printed);
            }
            printed += &(line + "\n");
        }
        let log = fs::read_to_string(folder.join("log")).unwrap();
        panic!("the commands failed after\n{printed}\n{log}");
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn ten_commands_set_up_three_machines_that_believe_certificates_only() {
    let (blocks, addresses) = with_free_ports(blocks());
    let [set_up, look] = blocks.as_slice() else {
        panic!("two blocks of commands, and not {}", blocks.len())
    };
    assert_eq!(commands(set_up), COMMANDS);
    let folder = tempfile::tempdir().unwrap();
    let (machines, printed) = Machines::set_up(folder.path(), set_up);
    // What the node ran, once it was admitted.
    assert!(printed.contains("RU in default"), "{printed}");
    let mut looked = says(folder.path(), look);
    eventually("the gateway is there", || {
        looked = says(folder.path(), look);
        looked.status.success() && out(&looked).contains("tidegate_gateway_controller_connected 1")
    });
    let seen = out(&looked);
    for part in
        ["gw-1", "node-1.", "default", "tls_certificate_expiry_timestamp_seconds{certificate=\"page\"}"]
    {
        assert!(seen.contains(part), "{part}: {seen}");
    }

    // Without a certificate nobody gets in, and with one nobody gets further than its role allows.
    let (endpoint, ca) = (format!("https://{}", addresses[0]), "certs/ca.pem");
    let refused = |script: &str, expected: &str| {
        let output = says(folder.path(), script);
        assert!(!output.status.success() && err(&output).contains(expected), "{script}: {}", err(&output));
    };
    let status = format!("tidegate status --endpoint {endpoint} --ca {ca}");
    refused(&status, "certificate");
    refused(&format!("{status} --cert node-1/node-1.pem --key node-1/node-1-key.pem"), "it needs the role");
    refused(&format!("tidegate status --endpoint http://{}", addresses[0]), "https://");
    refused(
        &format!(
            "tidegate node --endpoint {endpoint} --ca {ca} --cert gw-1/gw-1.pem --key gw-1/gw-1-key.pem --identity node-1"
        ),
        "node-1",
    );
    drop(machines);
}
