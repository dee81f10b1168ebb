//! Loading tokens from the store.

use super::tokens::{EarlierTokens, StoredToken, Tokens};
use crate::service::meta::Meta;
use crate::store::records::{META_NEXT_TOKEN, META_TOKENS, bad, json, put_json, put_number, u64_key, u64_of};
use crate::store::{Batch, Store, StoreError, Table, Write, each};

/// The tokens of the store. Those that an earlier version stored in one row get rows of their own with the first batch.
pub(crate) fn load_tokens(
    store: &dyn Store,
    meta: &Meta,
    first_batch: &mut Batch,
) -> Result<Tokens, StoreError> {
    let mut stored: Vec<StoredToken> = Vec::new();
    each(store, Table::Tokens, |key, value| {
        stored.push(token_of(key, value)?);
        Ok(())
    })?;
    let next_id = meta.number(META_NEXT_TOKEN)?.unwrap_or(1);
    let mut tokens = Tokens::load(next_id, stored).map_err(|reason| bad(Table::Tokens, &reason))?;
    let Some(value) = meta.get(META_TOKENS) else { return Ok(tokens) };
    let earlier: EarlierTokens = json(Table::Meta, value)?;
    let next_id = next_id.max(earlier.next_id);
    Tokens::load(next_id, earlier.tokens.clone()).map_err(|reason| bad(Table::Meta, &reason))?;
    for token in earlier.tokens {
        // Made by an earlier version that was started again in between: the token in force under this number stays.
        if tokens.has(token.id()) {
            tracing::warn!(
                id = token.id(),
                "a token of an earlier version has the number of another; make it again"
            );
            continue;
        }
        first_batch.push(put_json(Table::Tokens, u64_key(token.id()), &token)?);
        tokens.put(token).map_err(|reason| bad(Table::Meta, &reason))?;
    }
    tokens.skip_to(next_id);
    first_batch.push(put_number(META_NEXT_TOKEN, next_id));
    first_batch.push(Write::Delete(Table::Meta, META_TOKENS.to_vec()));
    Ok(tokens)
}

/// The token of a row.
pub(crate) fn token_of(key: &[u8], value: &[u8]) -> Result<StoredToken, StoreError> {
    let (id, token): (_, StoredToken) = (u64_of(Table::Tokens, key)?, json(Table::Tokens, value)?);
    if token.id() != id {
        return Err(bad(Table::Tokens, &format!("token {} has the key of another", token.id())));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use tidegate_proto::v1;

    use super::*;
    use crate::store::RedbStore;

    fn wish(name: &str) -> v1::CreateTokenRequest {
        v1::CreateTokenRequest { name: name.to_owned(), role: "viewer".to_owned(), ..Default::default() }
    }

    fn load(store: &RedbStore) -> (Tokens, Batch) {
        let mut batch = Batch::new();
        let tokens = load_tokens(store, &Meta::load(store).unwrap(), &mut batch).unwrap();
        (tokens, batch)
    }

    #[test]
    fn the_row_of_an_earlier_version_becomes_a_row_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&folder.path().join("store.redb")).unwrap();
        let mut made = Tokens::default();
        let mut secrets = Vec::new();
        for name in ["ann", "bob", "eve"] {
            let (token, secret) = made.wished(0, &wish(name)).unwrap();
            made.put(token).unwrap();
            secrets.push(secret);
        }
        made.remove(2);
        let earlier = EarlierTokens { next_id: 9, tokens: made.after(0).cloned().collect() };
        store.commit(&[put_json(Table::Meta, META_TOKENS.to_vec(), &earlier).unwrap()]).unwrap();
        for _ in 0..2 {
            let (tokens, batch) = load(&store);
            let known = secrets.iter().map(|secret| tokens.identify(0, secret.reveal()).is_some());
            assert_eq!(known.collect::<Vec<_>>(), [true, false, true]);
            assert_eq!(tokens.next_id(), 9);
            store.commit(&batch).unwrap();
            assert!(Meta::load(&store).unwrap().get(META_TOKENS).is_none());
        }
        assert_eq!(load(&store).1, Batch::new());
    }

    #[test]
    fn a_token_under_the_number_of_another_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&folder.path().join("store.redb")).unwrap();
        let (newer, kept) = Tokens::default().wished(0, &wish("ann")).unwrap();
        let (earlier, lost) = Tokens::default().wished(0, &wish("bob")).unwrap();
        let row = EarlierTokens { next_id: 2, tokens: vec![earlier] };
        let rows = [
            put_json(Table::Tokens, u64_key(1), &newer).unwrap(),
            put_number(META_NEXT_TOKEN, 2),
            put_json(Table::Meta, META_TOKENS.to_vec(), &row).unwrap(),
        ];
        store.commit(&rows).unwrap();
        let (tokens, _) = load(&store);
        assert!(tokens.identify(0, kept.reveal()).is_some() && tokens.identify(0, lost.reveal()).is_none());
    }

    #[test]
    fn tokens_that_no_controller_can_have_stored_are_refused_with_the_reason() {
        let (ann, _) = Tokens::default().wished(0, &wish("ann")).unwrap();
        let row = |key| put_json(Table::Tokens, u64_key(key), &ann).unwrap();
        let earlier = |next_id, tokens| {
            put_json(Table::Meta, META_TOKENS.to_vec(), &EarlierTokens { next_id, tokens }).unwrap()
        };
        let mut root = serde_json::to_value(&ann).unwrap();
        root["role"] = "root".into();
        for (rows, said) in [
            (vec![row(7), put_number(META_NEXT_TOKEN, 9)], "token 1 has the key of another"),
            (vec![row(1), put_number(META_NEXT_TOKEN, 1)], "token 1 has an id that is yet to come"),
            (vec![row(1)], "token 1 has an id that is yet to come"),
            (
                vec![put_json(Table::Tokens, u64_key(1), &root).unwrap(), put_number(META_NEXT_TOKEN, 2)],
                "root",
            ),
            (vec![earlier(1, vec![ann.clone()])], "token 1 has an id that is yet to come"),
            (vec![earlier(2, vec![ann.clone(), ann.clone()])], "two tokens have the id 1"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let store = RedbStore::open(&folder.path().join("store.redb")).unwrap();
            store.commit(&rows).unwrap();
            let loaded = load_tokens(&store, &Meta::load(&store).unwrap(), &mut Batch::new());
            let refused = loaded.map(drop).unwrap_err().to_string();
            assert!(refused.contains(said), "{said}: {refused}");
        }
    }

    #[test]
    fn no_number_is_given_again_where_an_earlier_version_knew_fewer() {
        let folder = tempfile::tempdir().unwrap();
        let store = RedbStore::open(&folder.path().join("store.redb")).unwrap();
        let mut made = Tokens::default();
        made.skip_to(7);
        let (newer, _) = made.wished(0, &wish("ann")).unwrap();
        let (earlier, _) = Tokens::default().wished(0, &wish("bob")).unwrap();
        let row = EarlierTokens { next_id: 2, tokens: vec![earlier] };
        let rows = [
            put_json(Table::Tokens, u64_key(7), &newer).unwrap(),
            put_number(META_NEXT_TOKEN, 9),
            put_json(Table::Meta, META_TOKENS.to_vec(), &row).unwrap(),
        ];
        store.commit(&rows).unwrap();
        for _ in 0..2 {
            let (tokens, batch) = load(&store);
            assert_eq!((tokens.next_id(), tokens.after(0).count()), (9, 2));
            store.commit(&batch).unwrap();
        }
    }
}
