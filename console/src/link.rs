//! Addresses of pages. An address holds the whole view: group, range, order, filter.

use std::fmt;

use form_urlencoded::{Serializer, byte_serialize};

/// The page that everything begins with; all others are below it.
pub const ROOT: &str = "/console";

/// An address, with its parameters in the order in which they were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    path: String,
    query: Vec<(&'static str, String)>,
}

impl Link {
    /// The page of these parts below the root; each is written so that it can be read back.
    pub fn to(parts: &[&str]) -> Self {
        let parts = parts.iter().map(|part| byte_serialize(part.as_bytes()).collect::<String>());
        // A space is `+` in a query only.
        let path = parts.fold(ROOT.to_owned(), |path, part| path + "/" + &part.replace('+', "%20"));
        Self { path, query: Vec::new() }
    }

    /// The same with a parameter. An empty value is the default, and left out.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        self.query.retain(|(of, _)| *of != key);
        if !value.is_empty() {
            self.query.push((key, value));
        }
        self
    }

    /// What stands after the path; empty without parameters.
    pub fn query(&self) -> String {
        let mut query = Serializer::new(String::new());
        for (key, value) in &self.query {
            query.append_pair(key, value);
        }
        query.finish()
    }

    /// The address of the live part of this page.
    #[must_use]
    pub fn live(&self) -> Self {
        Self { path: format!("{ROOT}/live"), query: Vec::new() }.with("view", self)
    }

    /// The page of a group.
    pub fn group(name: &str) -> Self {
        Self::to(&["groups", name])
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match self.query() {
            query if query.is_empty() => Ok(()),
            query => write!(f, "?{query}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_can_be_read_back_whatever_stands_in_it() {
        let odd = "a b/c?d&e=f#g%\u{202e}\"<";
        let link = Link::to(&["groups", odd]).with("q", odd).with("after", "").with("sort", "used");
        let text = link.to_string();
        let (path, query) = text.split_once('?').unwrap();
        assert_eq!(path.matches('/').count(), 3, "{text}");
        assert!(!text.contains(['"', '<', ' ', '#']), "{text}");
        let read: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        assert_eq!(read, [("q".to_owned(), odd.to_owned()), ("sort".to_owned(), "used".to_owned())]);
        let live = link.live().to_string();
        let view = form_urlencoded::parse(live.split_once('?').unwrap().1.as_bytes()).next().unwrap();
        assert_eq!(view, ("view".into(), text.into()));
    }

    #[test]
    fn a_parameter_is_there_once() {
        let link = Link::to(&["audit"]).with("before", 7).with("before", 3);
        assert_eq!(link.to_string(), "/console/audit?before=3");
        assert_eq!(link.with("before", "").to_string(), "/console/audit");
    }
}
