//! Numbers in few bytes: which of them are not zero, a bit each in the first four bytes, and those in LEB128.

/// `words`, of which there are at most 32.
pub(crate) fn pack(words: &[u128]) -> Box<[u8]> {
    let mut bytes = vec![0; 4];
    let mut present = 0_u32;
    for (index, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
        present |= 1 << index;
        let mut rest = *word;
        while rest >= 0x80 {
            bytes.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        bytes.push(rest.to_le_bytes()[0]);
    }
    bytes.splice(..4, present.to_le_bytes());
    bytes.into_boxed_slice()
}

/// The words again; zeros of no bytes.
pub(crate) fn unpack<const N: usize>(bytes: &[u8]) -> [u128; N] {
    let (present, rest) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let present = u32::from_le_bytes(*present);
    let mut rest = rest.iter();
    let mut words = [0; N];
    let is_present = |index: &usize| present & (1 << index) != 0;
    for (_, word) in words.iter_mut().enumerate().filter(|(index, _)| is_present(index)) {
        let mut shift = 0;
        for byte in rest.by_ref() {
            *word |= u128::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_back(words: [u128; 32], gone: u32) {
            let mut words = words;
            words.iter_mut().enumerate().filter(|(at, _)| gone & (1 << at) != 0).for_each(|(_, word)| *word = 0);
            prop_assert_eq!(unpack::<32>(&pack(&words)), words);
        }
    }

    #[test]
    fn zeros_take_no_room() {
        assert_eq!(pack(&[0; 27]).len(), 4);
        assert_eq!(pack(&[0, 127, 0, 128]).len(), 4 + 1 + 2);
        assert_eq!(unpack::<3>(&[]), [0; 3]);
    }
}
