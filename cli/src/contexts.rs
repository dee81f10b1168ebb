//! Contexts: controllers by name, each with what it is trusted by and what it is shown, in a file of the user's.
//!
//! The file is `TIDEGATE_CONTEXTS`, else `tidegate/contexts.toml` in the user's configuration folder. It holds paths of
//! keys and tokens, and none of them. An endpoint that is given, by option or environment, takes the place of the whole
//! context, so that no secret is shown to a controller that it is not for; other options and variables override single
//! settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidegate_tls::check_scheme;

use crate::args::Global;
use crate::endpoints;
use crate::error::CliError;

/// The environment variable with the file.
const VARIABLE: &str = "TIDEGATE_CONTEXTS";
/// Bytes of the file: a context has a few hundred.
const MOST_BYTES: u64 = 1_024 * 1_024;
/// Longest name of a context.
const MOST_NAME: usize = 64;

/// One controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
}

/// All of them, and the current one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// The file.
pub(crate) fn path() -> Result<PathBuf, CliError> {
    path_by(|name| std::env::var_os(name))
}

/// The file where variables have these values.
fn path_by(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, CliError> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = || {
        let configured = set("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
        configured.or_else(|| Some(set("HOME")?.join(".config")))
    };
    set(VARIABLE).or_else(|| Some(folder()?.join("tidegate").join("contexts.toml"))).ok_or_else(|| {
        CliError::Usage(format!("there is no HOME for the file of contexts: name it in {VARIABLE}"))
    })
}

/// Checks a name.
pub(crate) fn check_name(name: &str) -> Result<(), CliError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=MOST_NAME).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with(['-', '.']) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{name:?} is no name of a context: write 1 to {MOST_NAME} letters, digits, '.', '_' or '-', first a letter or \
         a digit"
    )))
}

/// The options as they are after the context: the one that is named, or the current one, where the command asks a
/// controller and no endpoint is given.
pub(crate) fn applied(global: Global) -> Result<Global, CliError> {
    if !global.takes_context {
        return Ok(global);
    }
    let named = global.context.clone();
    let path = match (path(), &named) {
        (Ok(path), _) => path,
        // Without a home there is no current one.
        (Err(_), None) => return Ok(global),
        (Err(error), Some(_)) => return Err(error),
    };
    let all = Contexts::read(&path)?;
    let Some(name) = named.or_else(|| all.current.clone()) else { return Ok(global) };
    let context = all.get(&name, &path)?.clone();
    Ok(under(global, name, context, crate::token::is_set()))
}

/// The options over a context. A token of the environment, which is none of them, goes over that of the context, too.
fn under(mut global: Global, name: String, context: Context, token_is_set: bool) -> Global {
    global.endpoint = context.endpoint;
    global.ca = global.ca.or(context.ca);
    if global.cert.is_none() {
        (global.cert, global.key) = (context.cert, context.key);
    }
    if global.token_file.is_none() && !token_is_set {
        global.token_file = context.token_file;
    }
    global.context = Some(name);
    global
}

impl Contexts {
    /// What the file has; nothing where there is none.
    pub(crate) fn read(path: &Path) -> Result<Self, CliError> {
        let failed = || CliError::file("read", path);
        let mut file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed()(error)),
        };
        let mode = file.metadata().map_err(failed())?.permissions().mode();
        if mode & 0o022 != 0 {
            let (path, mode) = (path.display(), mode & 0o7777);
            return Err(CliError::Refused(format!(
                "{path} has mode {mode:04o}: others can change where commands go; run: chmod 600 {path}"
            )));
        }
        let mut text = String::new();
        file.by_ref().take(MOST_BYTES).read_to_string(&mut text).map_err(failed())?;
        let wrong = |message: String| CliError::Content { path: path.into(), message };
        let all: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for (name, context) in &all.contexts {
            let checked = check_name(name).and_then(|()| context.check());
            checked.map_err(|error| wrong(format!("context {name:?}: {error}")))?;
        }
        match all.current.as_ref().filter(|name| !all.contexts.contains_key(*name)) {
            Some(name) => Err(wrong(format!("current = {name:?} is no context of it; {}", all.known()))),
            None => Ok(all),
        }
    }

    /// Writes the file, for its owner only.
    pub(crate) fn write(&self, path: &Path) -> Result<(), CliError> {
        let text = toml::to_string(self).map_err(|error| CliError::Usage(error.to_string()))?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(CliError::file("make the folder", folder))?;
        }
        tidegate_tls::write(path, &text, true, true).map_err(|error| CliError::Refused(error.to_string()))
    }

    /// The context of this name.
    pub(crate) fn get(&self, name: &str, path: &Path) -> Result<&Context, CliError> {
        self.contexts.get(name).ok_or_else(|| {
            let (path, known) = (path.display(), self.known());
            CliError::Usage(format!("{path} has no context {name:?}; {known}"))
        })
    }

    fn known(&self) -> String {
        let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
        match names.as_slice() {
            [] => "make one with `tidegate context add NAME --endpoint URL`".to_owned(),
            names => format!("it has {}", names.join(", ")),
        }
    }
}

impl Context {
    /// Checks it without a look at the files that it names.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        for endpoint in endpoints::each(&self.endpoint) {
            let unusable = |reason| CliError::Endpoint { endpoint: endpoint.to_owned(), reason };
            check_scheme(endpoint).map_err(unusable)?;
            if self.token_file.is_some() {
                crate::token::check_endpoint(endpoint)?;
            }
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(CliError::Usage("a certificate needs its key, and a key its certificate".to_owned()));
        }
        Ok(())
    }

    /// What it shows to the controller.
    pub(crate) fn shows(&self) -> &'static str {
        match (&self.cert, &self.token_file) {
            (_, Some(_)) => "token",
            (Some(_), None) => "certificate",
            (None, None) => "nothing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn the_file_is_where_the_environment_says_and_an_empty_variable_says_nothing() {
        let path = |set: &[(&str, &str)]| {
            path_by(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
        };
        let (xdg, home) = (("XDG_CONFIG_HOME", "/xdg"), ("HOME", "/home/ann"));
        for (set, file) in [
            (&[(VARIABLE, "mine.toml"), xdg, home][..], "mine.toml"),
            (&[(VARIABLE, ""), xdg, home], "/xdg/tidegate/contexts.toml"),
            (&[xdg], "/xdg/tidegate/contexts.toml"),
            // One that is not absolute is to be ignored, by the specification of such folders.
            (&[("XDG_CONFIG_HOME", "xdg"), home], "/home/ann/.config/tidegate/contexts.toml"),
            (&[("XDG_CONFIG_HOME", ""), home], "/home/ann/.config/tidegate/contexts.toml"),
        ] {
            assert_eq!(path(set).unwrap(), Path::new(file), "{set:?}");
        }
        for none in [&[][..], &[("HOME", "")]] {
            let error = path(none).unwrap_err();
            assert!(error.to_string().contains("name it in TIDEGATE_CONTEXTS"), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn an_option_goes_over_its_own_setting_of_a_context_only() {
        let files = |of: &str| {
            ["ca", "cert", "key", "token"].map(|what| Some(PathBuf::from(format!("/{of}-{what}"))))
        };
        let [ca, cert, key, token_file] = files("context");
        let context = Context { endpoint: "https://a:1".to_owned(), ca, cert, key, token_file };
        // Which of the options are given, and whether the environment holds a token.
        for (given, token_is_set) in [
            ([false; 4], false),
            ([false; 4], true),
            ([true, false, false, false], false),
            ([false, true, true, false], false),
            ([false, false, false, true], false),
            ([false, false, false, true], true),
            ([true; 4], false),
        ] {
            let mut options = files("option");
            let mut expected = files("context");
            for at in 0..4 {
                if given[at] {
                    expected[at].clone_from(&options[at]);
                } else {
                    options[at] = None;
                }
            }
            if token_is_set && !given[3] {
                expected[3] = None;
            }
            let [ca, cert, key, token_file] = options;
            let global = Global {
                endpoint: "http://127.0.0.1:7420".to_owned(),
                endpoint_given: false,
                context: None,
                takes_context: true,
                ca,
                cert,
                key,
                token_file,
                output: crate::output::Output::default(),
                color: crate::screen::Color::default(),
                actor: "ann".to_owned(),
            };
            let all = under(global, "prod".to_owned(), context.clone(), token_is_set);
            assert_eq!([all.ca, all.cert, all.key, all.token_file], expected, "{given:?} {token_is_set}");
            assert_eq!((all.endpoint.as_str(), all.context.as_deref()), ("https://a:1", Some("prod")));
        }
    }

    #[test]
    fn what_is_written_is_read_and_nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/contexts.toml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        let context = Context {
            endpoint: "https://a:1".to_owned(),
            ca: Some("/ca.pem".into()),
            cert: Some("/c.pem".into()),
            key: Some("/k.pem".into()),
            token_file: Some("/t".into()),
        };
        let bare = Context { ca: None, cert: None, key: None, token_file: None, ..context.clone() };
        let all = Contexts {
            current: Some("prod".to_owned()),
            contexts: [("prod".to_owned(), context), ("bare".to_owned(), bare)].into(),
        };
        all.write(&path).unwrap();
        assert_eq!(Contexts::read(&path).unwrap(), all);
        let by_certificate = Context { token_file: None, ..all.contexts["prod"].clone() };
        let shown = [&all.contexts["prod"], &by_certificate, &all.contexts["bare"]].map(Context::shows);
        assert_eq!(shown, ["token", "certificate", "nothing"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let folder = path.parent().unwrap();
        assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_what_is_wrong() {
        for (text, mode, said) in [
            ("", 0o620, "chmod 600"),
            ("current = 1", 0o600, "expected a string"),
            ("current = \"gone\"", 0o600, "\"gone\" is no context of it; make one"),
            ("[contexts.a]\nendpoint = \"a:1\"", 0o600, "context \"a\": endpoint \"a:1\""),
            ("[contexts.a]\nendpoint = \"https://a\"\ncert = \"/c\"", 0o600, "needs its key"),
            ("[contexts.a]\nendpoint = \"http://a\"\ntoken_file = \"/t\"", 0o600, "without TLS"),
            ("[contexts.a]\nca = \"/c\"", 0o600, "endpoint"),
            ("[contexts.a]\nendpoint = \"https://a\"\ntoken = \"tdg_1.a\"", 0o600, "unknown field `token`"),
            ("[contexts.\".a\"]\nendpoint = \"https://a\"", 0o600, "is no name of a context"),
        ] {
            let (_folder, path) = file(text, mode);
            let error = Contexts::read(&path).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
