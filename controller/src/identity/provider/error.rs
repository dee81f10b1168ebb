//! Why a JWT proves nothing. No error has a part of a signature, and what it quotes is cut.

/// Why a JWT proves no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It is larger than any that is meant.
    #[error("the JWT has {0} bytes, and at most {max} are read: let the provider put less into it", max = super::verify::MAX_JWT)]
    Long(usize),
    /// It is none.
    #[error("the text is no JWT: {0}; show what the provider issued, whole")]
    Malformed(&'static str),
    /// It is signed by an algorithm that is not allowed.
    #[error(
        "the JWT is signed by {alg:?}, and the provider {provider} may sign by {allowed} alone (algorithms)"
    )]
    Algorithm {
        /// What it says.
        alg: String,
        /// The provider.
        provider: String,
        /// What is allowed.
        allowed: String,
    },
    /// Nobody known issued it.
    #[error(
        "the JWT is of the issuer {issuer:?}, and the controller trusts {known}: name it in [[provider]], or show another"
    )]
    Issuer {
        /// What it says.
        issuer: String,
        /// The issuers of the configuration.
        known: String,
    },
    /// The provider has no such key, as far as is known.
    #[error(
        "the key {kid:?} of the JWT is none that the provider {provider} shows for {alg}; if it is new, its keys are \
         fetched again now: try again in some seconds"
    )]
    Key {
        /// The key's name.
        kid: String,
        /// The provider.
        provider: String,
        /// The algorithm that it is wanted for.
        alg: &'static str,
    },
    /// It names none of several keys.
    #[error("the JWT names no key (kid), and the provider {0} has several: let it write the key's name")]
    NoKey(String),
    /// The keys are not there.
    #[error(
        "the keys of the provider {provider} cannot be had ({reason}): JWTs are refused until they can; the log says more"
    )]
    NoKeys {
        /// The provider.
        provider: String,
        /// What is wrong.
        reason: String,
    },
    /// Its signature is of another key.
    #[error(
        "the signature of the JWT is not by the key that it names: it was changed, cut off or signed by somebody else"
    )]
    Signature,
    /// A claim that decides is missing or has another shape.
    #[error("the JWT has no claim {0:?} that can be read: the provider has to write it")]
    Claim(&'static str),
    /// It is for somebody else.
    #[error(
        "the JWT is for {found}, and the controller is {expected} (audience): ask the provider for one that is meant"
    )]
    Audience {
        /// What it says.
        found: String,
        /// What the configuration says.
        expected: String,
    },
    /// Its time is over.
    #[error("the JWT expired {seconds} s ago; get another from the provider")]
    Expired {
        /// How long ago.
        seconds: u64,
    },
    /// Its time has not begun.
    #[error(
        "the JWT counts in {seconds} s only ({claim}); are the clocks of the provider and the controller right?"
    )]
    Early {
        /// The claim that says so.
        claim: &'static str,
        /// How far ahead.
        seconds: u64,
    },
    /// No rule fits.
    #[error(
        "no role is for this JWT: none of the rules of the provider {provider} fits its claims ({claims}); add a \
         [[provider.role]] or let the provider write what one asks for"
    )]
    Unmapped {
        /// The provider.
        provider: String,
        /// The claims that rules look at.
        claims: String,
    },
    /// Its name cannot be one.
    #[error(
        "the claim {claim:?} of the JWT is no name of an identity: {reason}; name another claim (name_claim)"
    )]
    Unnamed {
        /// The claim.
        claim: String,
        /// What is wrong.
        reason: String,
    },
}
