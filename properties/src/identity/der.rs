//! Certificates written by hand: DER with any names, and a signature that nobody looks at.

/// A kind of name in a certificate, with its number in `GeneralName`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Mail = 1,
    Dns = 2,
    Uri = 6,
    Address = 7,
}

/// A certificate of these names.
pub(super) fn certificate(names: &[(Of, Vec<u8>)]) -> Vec<u8> {
    // ecdsa-with-SHA256; a key of P-256 that is no point; CN=x.
    let algorithm = tlv(0x30, &[&[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let key_kind: &[u8] =
        &[0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let bits = tlv(0x03, &[&[0, 4, 1, 2, 3]]);
    let key = tlv(0x30, &[&tlv(0x30, &[key_kind]), &bits]);
    let name = tlv(0x30, &[&tlv(0x31, &[&tlv(0x30, &[&[0x06, 3, 0x55, 4, 3, 0x0c, 1, b'x']])])]);
    let time = tlv(0x17, &[b"260101000000Z"]);
    let own: Vec<Vec<u8>> = names
        .iter()
        .map(|(of, text)| tlv(0x80 | u8::try_from(*of as u32).unwrap_or_default(), &[text]))
        .collect();
    let own: Vec<&[u8]> = own.iter().map(Vec::as_slice).collect();
    let list = tlv(0x04, &[&tlv(0x30, &own)]);
    let extensions = tlv(0xa3, &[&tlv(0x30, &[&tlv(0x30, &[&[0x06, 3, 0x55, 0x1d, 0x11], &list])])]);
    let body = tlv(
        0x30,
        &[
            &[0xa0, 3, 2, 1, 2, 2, 1, 1],
            &algorithm,
            &name,
            &tlv(0x30, &[&time, &time]),
            &name,
            &key,
            if names.is_empty() { &[] } else { &extensions },
        ],
    );
    tlv(0x30, &[&body, &algorithm, &bits])
}

/// A tag, a length and what is in it.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
    let [high, low] = length.to_be_bytes();
    let mut bytes = match length {
        0..0x80 => vec![tag, low],
        0x80..0x100 => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    bytes.extend(content);
    bytes
}
