//! What nodes say in tests.

use tidegate_proto::v1;
use tidegate_proto::v1::client_message::Kind as Ask;

/// The first message of a node's stream.
pub(crate) fn hello() -> v1::ClientMessage {
    let hello = v1::Hello {
        client_id: "node-1".to_owned(),
        incarnation: 1,
        protocol_min: 1,
        protocol_max: 1,
        ..v1::Hello::default()
    };
    v1::ClientMessage { kind: Some(Ask::Hello(hello)) }
}
