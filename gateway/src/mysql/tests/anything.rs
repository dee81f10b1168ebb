//! Input of any kind: nothing panics, nothing is kept beyond its limit, and nothing goes to a server unasked.

use super::captured::session;
use super::link::{Link, logged_in, packet};
use super::{Answer, ClientTls, Decision, INPUT_LIMIT, PIPELINE_LIMIT, PREPARED_LIMIT, Refusal, Settings};
use crate::session::Side;
use proptest::prelude::*;

fn settings() -> impl Strategy<Value = Settings> {
    let client_tls =
        prop_oneof![Just(ClientTls::Never), Just(ClientTls::LikeServer), Just(ClientTls::Always)];
    (client_tls, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(client_tls, server_tls, server_socket, local_infile)| Settings {
            client_tls,
            server_tls,
            server_socket,
            local_infile,
        },
    )
}

/// Bytes of packets that often make sense.
fn speech() -> impl Strategy<Value = (Side, Vec<u8>)> {
    let side = prop_oneof![Just(Side::Client), Just(Side::Server)];
    let first = prop_oneof![
        Just(0_u8),
        Just(0xff),
        Just(0xfe),
        Just(0xfb),
        Just(1),
        Just(3),
        Just(0x11),
        Just(0x16),
        Just(0x17),
        Just(0x19),
        Just(0x1f),
        Just(0x12),
        Just(0x70),
        any::<u8>()
    ];
    let payload = (first, prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..40))
        .prop_map(|(first, rest)| [&[first], &rest[..]].concat());
    let about_names = prop_oneof![
        Just("\x03prepare s from 'select 1'"),
        Just("\x03execute s"),
        Just("\x03deallocate prepare s"),
        Just("\x03execute immediate 'select 1'"),
    ];
    let sent = prop_oneof![
        1 => about_names.prop_map(|text| packet(0, text.as_bytes())),
        6 => (0_u8..5, payload).prop_map(|(sequence, payload)| packet(sequence, &payload)),
        1 => prop::collection::vec(any::<u8>(), 0..60),
        1 => Just(vec![0, 0, 0, 1]),
    ];
    (side, sent)
}

fn check(link: &Link) -> Result<(), TestCaseError> {
    prop_assert!(link.machine.wire().outstanding.len() <= PIPELINE_LIMIT);
    prop_assert!(link.machine.wire().statements.prepared.len() <= PREPARED_LIMIT);
    prop_assert!(link.machine.names() <= PREPARED_LIMIT);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_speech_after_a_login_is_survived(
        settings in settings(),
        speeches in prop::collection::vec(speech(), 0..60),
        refused in any::<u8>(),
    ) {
        let plain = Settings { server_tls: false, ..settings };
        let mut count = 0_u8;
        let mut link = logged_in(plain, move |_| {
            count = count.wrapping_add(1);
            let answer = Decision::Answer(Answer::Done { affected: 1, warnings: 0 });
            (count & refused == 0).then_some(answer)
        });
        for (place, (side, bytes)) in speeches.into_iter().enumerate() {
            if usize::from(refused) % (place + 2) == 1
                && let Some(progress) = link.machine.progress()
            {
                link.machine.kill(progress.number, Refusal { code: 8253, state: *b"HY000", message: String::new() });
            }
            if link.hear(side, &bytes).is_err() {
                break;
            }
            check(&link)?;
        }
        link.machine.abandon();
    }

    #[test]
    fn any_bytes_from_the_start_are_survived(
        settings in settings(),
        speeches in prop::collection::vec(speech(), 0..20),
    ) {
        let mut link = Link::new(settings);
        for (side, bytes) in speeches {
            if link.hear(side, &bytes).is_err() {
                break;
            }
            check(&link)?;
        }
    }

    #[test]
    fn a_session_with_a_wrong_byte_is_survived(at in any::<prop::sample::Index>(), byte in any::<u8>(), which in 0_usize..7) {
        let (name, _) = super::captured::SESSIONS[which];
        let mut turns = session(name);
        let total: usize = turns.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut at = at.index(total);
        for (_, bytes) in &mut turns {
            if at < bytes.len() {
                bytes[at] = byte;
                break;
            }
            at -= bytes.len();
        }
        let mut link = Link::new(Settings { local_infile: true, ..Settings::default() });
        for (side, bytes) in turns {
            if link.hear(side, &bytes).is_err() {
                break;
            }
            check(&link)?;
        }
    }
}

#[test]
fn a_declared_gigabyte_takes_no_room() {
    // Frames of the full length, one after the other: the beginning is seen, the rest goes by.
    let mut link = logged_in(Settings::default(), |_| None);
    let frame = [&[0xff, 0xff, 0xff, 0][..], &vec![b'x'; 0xff_ffff]].concat();
    let mut first = frame.clone();
    first[4] = 0x03;
    for frame in [first, frame] {
        for piece in frame.chunks(INPUT_LIMIT) {
            link.hear(Side::Client, piece).unwrap();
            assert!(link.kept() < 2 * INPUT_LIMIT);
            link.to_server.clear();
        }
    }
    assert_eq!(link.asked().len(), 1);
}
