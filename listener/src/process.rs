//! The operating system's figures of the process, under the names that every Prometheus client uses.
//!
//! *Source:* proc(5), and Prometheus' "Writing client libraries", standard and runtime collectors. Without that file
//! system, the series are missing.

use std::sync::atomic::AtomicU64;
use std::{fmt, fs};

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type FloatGauge = Gauge<f64, AtomicU64>;

/// Ticks per second in proc(5): the kernel's interface has this number on every architecture that matters here,
/// whatever the rate of its own clock.
const TICKS: f64 = 100.0;
/// Places of fields in `stat` after the name in parentheses, counted from 0.
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const START_TIME: usize = 19;
const VIRTUAL_BYTES: usize = 20;

/// The series.
#[derive(Debug)]
pub struct Process {
    /// Of these series alone, which have no prefix.
    registry: Registry,
    cpu: Counter<f64, AtomicU64>,
    resident: Gauge,
    virtual_memory: Gauge,
    open_fds: Gauge,
    max_fds: Gauge,
    start: FloatGauge,
}

impl Default for Process {
    fn default() -> Self {
        let mut registry = Registry::default();
        let cpu = Counter::default();
        registry.register("process_cpu_seconds", "User and system CPU time spent", cpu.clone());
        let mut gauge = |name, help| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let resident = gauge("process_resident_memory_bytes", "Resident memory");
        let virtual_memory = gauge("process_virtual_memory_bytes", "Virtual memory");
        let open_fds = gauge("process_open_fds", "Open file descriptors");
        let max_fds = gauge("process_max_fds", "Most file descriptors that may be open");
        let start = FloatGauge::default();
        registry.register(
            "process_start_time_seconds",
            "Start of the process since the Unix epoch",
            start.clone(),
        );
        Self { registry, cpu, resident, virtual_memory, open_fds, max_fds, start }
    }
}

impl Process {
    /// Adds these series, as they are now, to a page.
    pub fn write(&self, page: &mut String) -> Result<(), fmt::Error> {
        self.look();
        encode_registry(page, &self.registry)
    }

    /// Reads all figures again.
    fn look(&self) {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let (_, behind) = stat.rsplit_once(") ").unwrap_or_default();
        let fields: Vec<f64> =
            behind.split(' ').map(|field| field.trim().parse().unwrap_or_default()).collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        let spent = (field(USER_TIME) + field(SYSTEM_TIME)) / TICKS;
        self.cpu.inc_by((spent - self.cpu.get()).max(0.0));
        let boot = line("/proc/stat", "btime ").and_then(|seconds| seconds.parse::<f64>().ok());
        self.start.set(boot.unwrap_or_default() + field(START_TIME) / TICKS);
        let bytes = behind.split(' ').nth(VIRTUAL_BYTES).and_then(|bytes| bytes.parse().ok());
        self.virtual_memory.set(bytes.unwrap_or_default());
        let resident = line("/proc/self/status", "VmRSS:");
        let resident = resident.and_then(|text| text.strip_suffix(" kB")?.trim().parse::<i64>().ok());
        self.resident.set(resident.unwrap_or_default().saturating_mul(1_024));
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        self.open_fds.set(i64::try_from(open).unwrap_or(i64::MAX));
        let most = line("/proc/self/limits", "Max open files");
        self.max_fds.set(most.as_deref().and_then(in_force).unwrap_or(i64::MAX));
    }
}

/// The limit that counts, of a line of `limits`: the first is in force, and the second as far as it may be raised.
fn in_force(limits: &str) -> Option<i64> {
    limits.split_whitespace().next()?.parse().ok()
}

/// The rest of the line that begins with `begin`.
fn line(path: &str, begin: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(begin))?;
    Some(rest.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_seen_as_it_is() {
        let process = Process::default();
        process.look();
        let before = process.cpu.get();
        let held: Vec<u8> = vec![7; 32 << 20];
        while process.cpu.get() < before + 0.02 {
            std::hint::black_box(held.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            process.look();
        }
        assert!(process.resident.get() > 32 << 20 && process.virtual_memory.get() >= process.resident.get());
        assert!(process.open_fds.get() > 0 && process.max_fds.get() >= process.open_fds.get());
        let boot: f64 = line("/proc/stat", "btime ").unwrap().parse().unwrap();
        let up = fs::read_to_string("/proc/uptime").unwrap();
        let up: f64 = up.split(' ').next().unwrap().parse().unwrap();
        // Ticks are cut off, and the clock may be set while a machine runs.
        let since_boot = process.start.get() - boot;
        assert!((0.0..=up + 1.0).contains(&since_boot), "{since_boot} of {up}");
    }

    #[test]
    fn the_limit_of_open_files_is_the_one_in_force() {
        assert_eq!(in_force("1024                 1048576              files"), Some(1_024));
        assert_eq!(in_force("unlimited            unlimited            files"), None);
        assert_eq!(in_force(""), None);
    }

    #[test]
    fn a_page_has_each_figure_as_it_is_when_it_is_asked_for() {
        let mut page = String::new();
        Process::default().write(&mut page).unwrap();
        for series in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
        ] {
            let figure = page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok());
            // A process that just began may have used no whole tick.
            let least = if series.starts_with("process_cpu") { 0.0 } else { 1.0 };
            assert!(figure.is_some_and(|figure| figure >= least), "{series} in {page}");
        }
    }
}
