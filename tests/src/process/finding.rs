//! How a node that is run for a test finds its group: the controller may be away for long.

use tidegate_client::{Client, Group, GroupError};

/// Asks until the controller answers.
pub async fn found(client: &Client, name: &str) -> Result<Group, GroupError> {
    loop {
        match client.group(name).await {
            Err(GroupError::Unavailable { .. }) => {}
            answer => return answer,
        }
    }
}
