//! What processes used in their whole lives, as the kernel reports it when they end: its taskstats, over netlink. The
//! kernel reports to processes that may administer the network (root, or `CAP_NET_ADMIN`) of the machine itself, not of
//! a container.
//!
//! Messages, in the machine's byte order: `nlmsghdr` (16 bytes: length u32, type u16, flags u16, sequence and port u32),
//! `genlmsghdr` (4 bytes, of them the command first), attributes (length u16 with these 4 bytes, type u16, value, filled
//! up to a multiple of 4).

use std::os::fd::OwnedFd;

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::share::Counted;

/// Longer than any message of these: the longest has two records of some 600 bytes.
const MAX_MESSAGE: usize = 4_096;
/// Bytes of records that wait to be read. One takes some 2 KiB with what the kernel needs for it, and every thread of the
/// machine that ends leaves one: the usual 208 KiB are full after a hundred, which a build beside leaves in a second.
const ROOM: usize = 4 << 20;
/// Length of both headers before the attributes.
const HEADERS: usize = 20;

// Of <linux/netlink.h>, <linux/genetlink.h> and <linux/taskstats.h>.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const TASKSTATS_CMD_GET: u8 = 1;
const TASKSTATS_CMD_ATTR_REGISTER_CPUMASK: u16 = 3;
const TASKSTATS_TYPE_PID: u16 = 1;
const TASKSTATS_TYPE_STATS: u16 = 3;
const TASKSTATS_TYPE_AGGR_PID: u16 = 4;

/// Where in `struct taskstats` its fields are; fields have only ever been added behind these.
mod field {
    /// As the scheduler counts it, in ns; the same as in `schedstat`.
    pub(super) const CPU_RUN_VIRTUAL: usize = 72;
    /// By user and system, in µs, coarser, where the kernel does not account delays.
    pub(super) const AC_UTIME: usize = 152;
    pub(super) const AC_STIME: usize = 160;
    pub(super) const READ_CHAR: usize = 216;
    pub(super) const WRITE_CHAR: usize = 224;
    pub(super) const WRITE_SYSCALLS: usize = 240;
}

/// Hears of every process of this machine that ends from here on.
#[derive(Debug)]
pub(super) struct Exits(OwnedFd);

impl Exits {
    /// `None` where the kernel does not report.
    pub(super) fn listen() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(GENERIC)).ok()?;
        connect(&socket, &SocketAddrNetlink::new(0, 0)).ok()?;
        // Takes the right that listening takes, too.
        set_socket_recv_buffer_size_force(&socket, ROOM).ok()?;
        let own = Self(socket);
        own.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0, CTRL_ATTR_FAMILY_NAME, "TASKSTATS")?;
        let told = own.hear()?;
        let family = told.get(HEADERS..).and_then(|rest| value(rest, CTRL_ATTR_FAMILY_ID))?;
        let family = u16::from_ne_bytes(family.try_into().ok()?);
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
        own.ask(family, TASKSTATS_CMD_GET, NLM_F_ACK, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, cpus.trim())?;
        // The answer of success is an error of zero, in front of which there may already be a record.
        while let Some(told) = own.hear() {
            if told.get(4..6)? == NLMSG_ERROR.to_ne_bytes() {
                return (told.get(16..20)? == [0; 4]).then_some(own);
            }
        }
        None
    }

    /// The next process that has ended, and what it used; `None` when there is no other so far.
    pub(super) fn next(&self) -> Option<(u32, Counted)> {
        loop {
            // Messages that are no record are ignored.
            if let Some(ended) = ended(&self.hear()?) {
                return Some(ended);
            }
        }
    }

    fn ask(&self, kind: u16, command: u8, flags: u16, attribute: u16, text: &str) -> Option<()> {
        let message = request(kind, command, NLM_F_REQUEST | flags, attribute, text)?;
        send(&self.0, &message, SendFlags::empty()).ok().map(drop)
    }

    /// The next message. The kernel answers within the request, so there is nothing to wait for.
    fn hear(&self) -> Option<Vec<u8>> {
        let mut message = vec![0; MAX_MESSAGE];
        loop {
            match recv(&self.0, message.as_mut_slice(), RecvFlags::empty()) {
                Ok((length, _)) => {
                    message.truncate(length);
                    return Some(message);
                }
                // More ended than there was room for; what is in the room can be read behind this.
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

/// A request with one attribute, a text.
fn request(kind: u16, command: u8, flags: u16, attribute: u16, text: &str) -> Option<Vec<u8>> {
    let filled = (text.len() + 1).next_multiple_of(4);
    let length = u32::try_from(HEADERS + 4 + filled).ok()?;
    let attribute_length = u16::try_from(4 + text.len() + 1).ok()?;
    let mut message = Vec::with_capacity(HEADERS + 4 + filled);
    message.extend(length.to_ne_bytes());
    message.extend([kind, flags].map(u16::to_ne_bytes).as_flattened());
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend([attribute_length, attribute].map(u16::to_ne_bytes).as_flattened());
    message.extend(text.as_bytes());
    message.resize(HEADERS + 4 + filled, 0);
    Some(message)
}

/// The process that a message is about.
fn ended(message: &[u8]) -> Option<(u32, Counted)> {
    let process = value(message.get(HEADERS..)?, TASKSTATS_TYPE_AGGR_PID)?;
    let pid = u32::from_ne_bytes(value(process, TASKSTATS_TYPE_PID)?.try_into().ok()?);
    let stats = value(process, TASKSTATS_TYPE_STATS)?;
    let number = |at: usize| {
        let bytes = stats.get(at..)?.first_chunk::<8>()?;
        Some(u64::from_ne_bytes(*bytes))
    };
    let micros = number(field::AC_UTIME)?.saturating_add(number(field::AC_STIME)?);
    let cpu_ns = match number(field::CPU_RUN_VIRTUAL)? {
        0 => micros.saturating_mul(1_000),
        ns => ns,
    };
    let (read, written) = (number(field::READ_CHAR)?, number(field::WRITE_CHAR)?);
    Some((pid, Counted { cpu_ns, read, written, writes: number(field::WRITE_SYSCALLS)? }))
}

/// The value of the first attribute of this type.
fn value(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let ([low, high, rest @ ..], _) = attributes.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([*low, *high]));
        let found = attributes.get(4..length)?;
        if u16::from_ne_bytes(*rest) == wanted {
            return Some(found);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::{Child, Command};

    use super::*;

    fn attribute(kind: u16, bytes: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + bytes.len()).unwrap();
        let mut made = [length, kind].map(u16::to_ne_bytes).concat();
        made.extend(bytes);
        made.resize(made.len().next_multiple_of(4), 0);
        made
    }

    #[test]
    fn a_record_is_read_and_what_is_cut_off_is_none() {
        let mut stats = vec![0; 248];
        for (at, number) in [
            (field::CPU_RUN_VIRTUAL, 7_u64),
            (field::READ_CHAR, 2_048),
            (field::WRITE_CHAR, 9),
            (field::WRITE_SYSCALLS, 3),
        ] {
            stats[at..at + 8].copy_from_slice(&number.to_ne_bytes());
        }
        let message = |stats: &[u8]| {
            let parts = [attribute(TASKSTATS_TYPE_PID, &41_u32.to_ne_bytes()), attribute(3, stats)].concat();
            [vec![0; HEADERS], attribute(6, &[]), attribute(TASKSTATS_TYPE_AGGR_PID, &parts)].concat()
        };
        let used = Counted { cpu_ns: 7, read: 2_048, written: 9, writes: 3 };
        assert_eq!(ended(&message(&stats)), Some((41, used)));
        // A kernel that does not account delays.
        stats[field::CPU_RUN_VIRTUAL] = 0;
        stats[field::AC_UTIME] = 3;
        assert_eq!(ended(&message(&stats)).unwrap().1.cpu_ns, 3_000);
        let whole = message(&stats);
        for length in 0..whole.len() {
            assert_eq!(ended(&whole[..length]), None, "{length}");
        }
        assert_eq!(value(&[0; 16], 1), None, "an attribute without a length");
    }

    /// `None` where nobody may: in a container, or without the right.
    fn heard() -> Option<Exits> {
        // The numbers the kernel gives those of the machine itself.
        let of_the_machine = ["pid:[4026531836]", "user:[4026531837]"].iter().all(|space| {
            let (kind, _) = space.split_once(':').unwrap();
            std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().to_str() == Some(space)
        });
        let exits = Exits::listen();
        let may = of_the_machine && rustix::process::geteuid().is_root();
        assert!(exits.is_some() || !may, "root hears of it, outside of containers");
        exits
    }

    #[test]
    fn who_may_hears_what_a_process_used_until_its_end() {
        let Some(exits) = heard() else { return };
        let mut child =
            Command::new("sh").args(["-c", "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done"]).spawn();
        let child = child.as_mut().unwrap();
        assert!(child.wait().unwrap().success());
        let told = std::iter::from_fn(|| exits.next()).find(|(pid, _)| *pid == child.id());
        let (_, used) = told.expect("its record is there once it was waited for");
        assert!(used.cpu_ns > 1_000_000, "{used:?}");
    }

    #[test]
    fn the_records_of_many_that_end_between_two_looks_wait() {
        let Some(exits) = heard() else { return };
        let children: Vec<Child> = (0..400).map(|_| Command::new("true").spawn().unwrap()).collect();
        let mut left: BTreeSet<u32> = children.iter().map(Child::id).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        while let Some((pid, _)) = exits.next() {
            left.remove(&pid);
        }
        assert!(left.is_empty(), "{} of them are missing", left.len());
    }

    #[test]
    fn a_request_is_as_long_as_it_says_and_its_text_ends_in_it() {
        for (text, length) in [("TASKSTATS", 36), ("0-7", 28), ("12345678", 36)] {
            let message = request(16, 3, 5, 2, text).unwrap();
            assert_eq!(message.len(), length, "{text}");
            let said = u32::try_from(length).unwrap().to_ne_bytes();
            assert_eq!(
                (&message[..4], &message[4..8]),
                (&said[..], [16, 5].map(u16::to_ne_bytes).as_flattened())
            );
            let ended = [text.as_bytes(), &[0]].concat();
            assert_eq!(value(&message[HEADERS..], 2), Some(&ended[..]));
        }
    }

    #[test]
    fn where_delays_are_not_accounted_the_time_is_that_of_user_and_system() {
        let mut stats = vec![0; 248];
        for (at, number) in [(field::AC_UTIME, 3_u64), (field::AC_STIME, 4)] {
            stats[at..at + 8].copy_from_slice(&number.to_ne_bytes());
        }
        let parts =
            [attribute(TASKSTATS_TYPE_PID, &41_u32.to_ne_bytes()), attribute(TASKSTATS_TYPE_STATS, &stats)];
        let message = [vec![0; HEADERS], attribute(TASKSTATS_TYPE_AGGR_PID, &parts.concat())].concat();
        assert_eq!(ended(&message), Some((41, Counted { cpu_ns: 7_000, ..Counted::default() })));
    }
}
