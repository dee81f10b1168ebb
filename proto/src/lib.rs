//! `tidegate.v1`, the wire protocol: generated code, the encoding of counters of 128 bits, and what older peers leave out. The `.proto` files under
//! `proto/` document every message, with units.

mod consumption;

pub use consumption::WORDS;

/// Version 1 of the protocol.
pub mod v1 {
    tonic::include_proto!("tidegate.v1");

    impl QuotaState {
        /// What it counts, which a controller before quotas of requests does not say.
        #[must_use]
        pub fn counts(&self) -> &str {
            if self.unit.is_empty() { "RU" } else { &self.unit }
        }
    }

    impl std::fmt::Debug for CreateTokenReply {
        /// Without the secret.
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("CreateTokenReply").field("token", &self.token).finish_non_exhaustive()
        }
    }
}

/// Serialised descriptors of every `.proto` file, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The group of a binding whose true one is not shown to this node: a name that is no group's, so that a node which takes
/// it for one is refused, and charges no other group.
pub const NOT_GIVEN: &str = "not-given-to-this-node";

/// A key of the metadata of a refusal: this controller is about to lead, so the same call is to be made again at once.
pub const ABOUT_TO_LEAD: &str = "tidegate-about-to-lead";

/// Oldest and newest protocol version this build speaks.
pub const PROTOCOL_VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;
