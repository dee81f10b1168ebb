//! The address of a server of others that is sent something.

use std::fmt;
use std::str::FromStr as _;

use http::Uri;

use crate::outgoing::is_here;

/// Bytes of an address: more than any receiver has.
const MAX_URL: usize = 2_048;

/// The address of a receiver, under TLS or where plaintext is allowed. Who has all of it may be able to write there, so
/// only its host is ever shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(Uri);

/// What is wrong with an address. The caller says which setting it is, and the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// It is none, is too long, or is of another scheme than `http` and `https`.
    None,
    /// It has a user in it.
    User,
    /// It is on another machine, without TLS.
    Plain,
}

impl Address {
    /// Checks an address; `plaintext` allows another machine without TLS.
    ///
    /// # Errors
    /// What is wrong with it, without the address.
    pub fn parse(text: &str, plaintext: bool) -> Result<Self, AddressError> {
        let uri = Uri::from_str(text).ok().filter(|_| text.len() <= MAX_URL);
        let uri = uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        let uri = uri.ok_or(AddressError::None)?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(AddressError::User);
        }
        match uri.scheme_str() {
            Some("https") => Ok(Self(uri)),
            Some("http") if plaintext || is_here(&uri) => Ok(Self(uri)),
            Some("http") => Err(AddressError::Plain),
            _ => Err(AddressError::None),
        }
    }

    /// The same; one without a path or a query gets this path.
    #[must_use]
    pub fn or_at(self, path: &'static str) -> Self {
        if self.0.path() != "/" || self.0.query().is_some() {
            return self;
        }
        Uri::from_str(&format!("{self}{path}")).map_or(self, Self)
    }

    /// The text of it, for the file that it came from.
    pub fn reveal(&self) -> String {
        self.0.to_string()
    }

    /// All of it.
    pub fn uri(&self) -> &Uri {
        &self.0
    }

    /// Whether it is under TLS.
    pub fn is_secure(&self) -> bool {
        self.0.scheme_str() == Some("https")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        write!(f, "{}://{authority}", self.0.scheme_str().unwrap_or_default())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_no_user_a_bounded_length_and_tls_unless_it_is_here() {
        let of_length = |length: usize| format!("https://h/{}", "x".repeat(length - "https://h/".len()));
        for (text, plaintext, is_secure) in [
            ("https://host.example", false, true),
            ("http://127.0.0.1:1", false, false),
            ("http://host.example", true, false),
            (&*of_length(MAX_URL), false, true),
        ] {
            assert_eq!(
                Address::parse(text, plaintext).map(|address| address.is_secure()),
                Ok(is_secure),
                "{text}"
            );
        }
        for (text, error) in [
            ("https://", AddressError::None),
            ("host.example", AddressError::None),
            ("ftp://host.example", AddressError::None),
            (&*of_length(MAX_URL + 1), AddressError::None),
            ("https://ann@host.example", AddressError::User),
            ("http://host.example", AddressError::Plain),
        ] {
            assert_eq!(Address::parse(text, false).map(drop), Err(error), "{text}");
        }
    }

    #[test]
    fn one_without_a_path_gets_the_usual_one() {
        for (text, all) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/usual"),
            ("http://localhost/", "http://localhost/usual"),
            ("https://[::1]:9/own", "https://[::1]:9/own"),
            ("https://host.example/?key=s", "https://host.example/?key=s"),
        ] {
            assert_eq!(Address::parse(text, false).unwrap().or_at("/usual").reveal(), all);
        }
    }
}
