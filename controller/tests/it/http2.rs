//! What a peer can do to HTTP/2 itself: resets, heads and frames beyond the limits end its own connection, soon, and
//! nobody else's.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::support::{Lab, PATIENCE};

const DATA: u8 = 0;
const HEAD: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
/// Flags of a head: the stream has no more, and the head has no more.
const WHOLE: u8 = 5;
/// The head has no more.
const END_OF_HEAD: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The fields of a call, as HPACK writes them without compression.
fn fields(more: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let length = text.len();
        // Seven bits, and the rest in further bytes.
        let mut bytes = if length < 127 { vec![u8::try_from(length).unwrap()] } else { vec![127] };
        let mut rest = length.saturating_sub(127);
        if length >= 127 {
            loop {
                let low = u8::try_from(rest & 127).unwrap();
                rest >>= 7;
                bytes.push(if rest > 0 { low | 128 } else { low });
                if rest == 0 {
                    break;
                }
            }
        }
        bytes.extend(text.as_bytes());
        bytes
    };
    let mut block =
        [&[0x83, 0x86, 0x04][..], &text("/tidegate.v1.Admin/Status"), &[0x01], &text("localhost")].concat();
    block.extend(
        [&[0x0f, 0x10][..], &text("application/grpc"), &[0x00], &text("te"), &text("trailers")].concat(),
    );
    for (name, value) in more {
        block.extend([&[0x00][..], &text(name), &text(value)].concat());
    }
    block
}

/// Sends this behind the preface; returns the frames that come until the end of the connection, and whether it ended.
async fn answer(lab: &Lab, sent: &[u8]) -> (Vec<(u8, Vec<u8>)>, bool) {
    let mut stream = TcpStream::connect(lab.running.grpc_addr).await.unwrap();
    let opening = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    stream.write_all(&opening).await.unwrap();
    let (mut reads, mut writes) = stream.split();
    let mut frames = Vec::new();
    // The controller may close while this is still sending.
    let send = async {
        let _ = writes.write_all(sent).await;
        std::future::pending::<()>().await;
    };
    let hear = async {
        let mut head = [0; 9];
        while reads.read_exact(&mut head).await.is_ok() {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            if reads.read_exact(&mut payload).await.is_err() {
                return;
            }
            frames.push((head[3], payload));
        }
    };
    let ended = timeout(PATIENCE, async {
        tokio::select! {
            () = send => {}
            () = hear => {}
        }
    });
    let has_ended = ended.await.is_ok();
    (frames, has_ended)
}

/// The code of the frame that ends a connection.
fn why(frames: &[(u8, Vec<u8>)]) -> Option<u8> {
    frames.iter().find(|(kind, _)| *kind == GOAWAY).map(|(_, payload)| payload[7])
}

#[tokio::test]
async fn a_flood_of_resets_heads_or_large_frames_ends_the_connection_that_sends_it() {
    const TOO_LARGE: u8 = 6;
    const CALM: u8 = 11;
    let lab = Lab::start().await;
    let mut others = lab.admin().await;
    // Calls that are taken back at once.
    let resets: Vec<u8> = (0..2_000)
        .flat_map(|number| {
            let stream = 2 * number + 1;
            [frame(HEAD, WHOLE, stream, &fields(&[])), frame(RESET, 0, stream, &[0, 0, 0, 8])].concat()
        })
        .collect();
    // A head that does not end.
    let part = vec![0; 16_384];
    let endless: Vec<u8> = std::iter::once(frame(HEAD, 0, 1, &fields(&[])))
        .chain((0..500).map(|_| frame(CONTINUATION, 0, 1, &part)))
        .flatten()
        .collect();
    // A frame larger than the controller said it takes.
    let head = frame(HEAD, END_OF_HEAD, 1, &fields(&[]));
    let large = [head, frame(DATA, 0, 1, &vec![0; 16_385])].concat();
    for (sent, code) in [(resets, Some(CALM)), (endless, None), (large, Some(TOO_LARGE))] {
        let (frames, has_ended) = answer(&lab, &sent).await;
        let kinds: Vec<u8> = frames.iter().map(|(kind, _)| *kind).collect();
        assert!(has_ended, "{code:?}: {kinds:?}");
        assert!(code.is_none() || why(&frames) == code, "{code:?}: {kinds:?} {:?}", why(&frames));
        others.status(tidegate_proto::v1::StatusRequest {}).await.unwrap();
    }
    // A head beyond what is taken, in two frames: that call is refused, and no handler sees it.
    let block = fields(&[("x-long", &"a".repeat(20_000))]);
    let (first, rest) = block.split_at(16_000);
    let sent = [frame(HEAD, 1, 1, first), frame(CONTINUATION, END_OF_HEAD, 1, rest)].concat();
    let mut stream = TcpStream::connect(lab.running.grpc_addr).await.unwrap();
    let opening = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[]), &sent].concat();
    stream.write_all(&opening).await.unwrap();
    let mut head = [0; 9];
    let refused = async {
        loop {
            stream.read_exact(&mut head).await.unwrap();
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            stream.read_exact(&mut payload).await.unwrap();
            match head[3] {
                // 431 as HPACK writes it: not among the statuses of its table.
                HEAD => return payload.windows(3).any(|part| part == b"431") || payload.len() < 8,
                RESET | GOAWAY => return true,
                _ => {}
            }
        }
    };
    assert!(timeout(PATIENCE, refused).await.unwrap());
}
