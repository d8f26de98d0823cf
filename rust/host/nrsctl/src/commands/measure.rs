// SPDX-License-Identifier: GPL-2.0-only

//! `nrsctl measure`

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use nrs_sched::rng::Rng;

use crate::commands::record;
use crate::failure::{failure, Failure, FailureKind, Result};
use crate::kernel::Kernel;

/// Bytes of a read of the sweep.
const SMALL: u64 = 4 << 10;

/// Bytes of a read that measures the capacity.
const LARGE: u64 = 1 << 20;
/// Minimum queue depth of the reads that measure the capacity.
const LARGE_DEPTH: u16 = 16;

/// Alignment of direct reads in the device and in memory, bytes.
const ALIGNED: usize = 4096;

/// Threshold, % of the highest rate, from which two rates are considered equal.
const SAME: u64 = 98;

/// Fraction of the measured capacity that is proposed, %.
const SAFE: u64 = 95;

/// Arguments of `nrsctl measure`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Path of the block device or file; it is only read.
    pub device: PathBuf,
    /// Total duration in seconds, 0.1 to 3600.
    #[arg(long, value_name = "S", default_value = "20", value_parser = record::interval)]
    pub time: Duration,
    /// Largest queue depth, 1 to 1024.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 128,
        value_parser = clap::value_parser!(u16).range(1..=1024),
    )]
    pub max_depth: u16,
    /// Name of the qbm group (default: the device's name).
    #[arg(long)]
    pub name: Option<String>,
}

/// Device or file that is measured.
struct MeasuredDevice {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// `MAJOR:MINOR` of a block device.
    number: Option<String>,
}

impl MeasuredDevice {
    /// Opens `path` for direct reads.
    ///
    /// # Errors
    ///
    /// - [`FailureKind::Refused`]: `path` is neither a block device nor a file, is smaller than a
    ///   read, or its file system does not support direct I/O.
    /// - Errors of opening.
    fn open(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| Failure::of_file(path, &error);
        let refused = |reason: &str| failure!(Refused: "{}: {reason}", path.display());
        // Opening a pipe may block.
        let kind = std::fs::metadata(path).map_err(failed)?;
        if !kind.file_type().is_block_device() && !kind.is_file() {
            return Err(refused("neither a block device nor a file"));
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(path);
        let mut file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => refused("the file system does not support direct I/O"),
            _ => failed(error),
        })?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if bytes < LARGE {
            return Err(refused("too small (minimum: 1 MiB)"));
        }
        let device = kind.rdev();
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        Ok(Self {
            file,
            path: path.into(),
            bytes,
            number: kind.file_type().is_block_device().then_some(number),
        })
    }

    /// Returns the rate, bytes/s, of random reads of `size` bytes at queue depth `depth`. Only the
    /// last 80 % of `time` are counted.
    ///
    /// # Errors
    ///
    /// Errors of reading.
    fn rate(&self, size: u64, depth: u16, time: Duration) -> Result<u64> {
        let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let window = time.mul_f64(0.8);
        let read = |seed: u64| -> io::Result<()> {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let mut memory = vec![0; size + ALIGNED];
            let start = memory.as_ptr().align_offset(ALIGNED).min(ALIGNED);
            let buffer = &mut memory[start..start + size];
            let mut random = Rng::new(seed);
            while !over.load(Ordering::Relaxed) {
                let place = random.below(self.bytes / size as u64) * size as u64;
                let bytes = self.file.read_at(buffer, place)?;
                done.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Ok(())
        };
        let (bytes, took, ended) = thread::scope(|scope| {
            let seeds = (0..depth).map(|n| (u64::from(std::process::id()) << 16) | u64::from(n));
            let readers: Vec<_> = seeds.map(|seed| scope.spawn(move || read(seed))).collect();
            sleep(time - window);
            let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
            sleep(window);
            let (bytes, took) = (done.load(Ordering::Relaxed) - before, begun.elapsed());
            over.store(true, Ordering::Relaxed);
            let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            (bytes, took, ended)
        });
        for one in ended {
            let one = one.unwrap_or_else(|_| Err(io::Error::other("a thread failed")));
            one.map_err(|error| Failure::of_file(&self.path, &error))?;
        }
        Ok((bytes as f64 / took.as_secs_f64()) as u64)
    }
}

/// Returns the queue depths of a sweep.
fn depths(max: u16) -> Vec<u16> {
    let mut depths: Vec<u16> = (0..16)
        .map(|bit| 1 << bit)
        .take_while(|depth| *depth < max)
        .collect();
    depths.push(max);
    depths
}

/// Returns the smallest depth whose rate is at least [`SAME`] % of the highest; `None` if all rates
/// are 0.
fn knee(rates: &[(u16, u64)]) -> Option<u16> {
    let most = rates
        .iter()
        .map(|(_, rate)| *rate)
        .max()
        .filter(|most| *most > 0)?;
    let mut enough = rates.iter().filter(|(_, rate)| rate * 100 >= most * SAME);
    enough.next().map(|(depth, _)| *depth)
}

/// Returns the name of the group.
fn group(args: &Args) -> Result<String> {
    let own = || {
        args.device
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
    };
    let name = args.name.clone().unwrap_or_else(|| own().into_owned());
    let takes = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte);
    match (1..=31).contains(&name.len()) && name.bytes().all(takes) {
        true => Ok(name),
        false => Err(failure!(Usage: "'{name}' is not a valid group name";
            "set --name: letters, digits and _ . : -")),
    }
}

/// Checks that reads of the device `number`, which is `path`, bypass nrs.
///
/// # Errors
///
/// - [`FailureKind::Refused`]: the device is of type nrs, or a disk that nrs schedules, or a
///   partition of such a disk.
/// - Errors of listing devices.
fn direct(kernel: &dyn Kernel, path: &Path, number: &str) -> Result {
    let devices = match kernel.devices() {
        Err(failure) if failure.kind == FailureKind::NotLoaded => return Ok(()),
        devices => devices?,
    };
    let (name, disk) = (kernel.path(number)?, kernel.whole(number));
    for device in devices {
        let hint = match device.scheduled {
            true if device.target == disk => format!("nrsctl device unschedule {}", device.name),
            false if name == format!("/dev/mapper/{}", device.name) => {
                let below = kernel.path(&device.target)?;
                format!("measure the device below: {below}")
            }
            _ => continue,
        };
        let (path, service) = (path.display(), device.service);
        return Err(failure!(Refused:
            "{path}: nrs schedules this device (service {service})"; "{hint}"));
    }
    Ok(())
}

/// Measures a device with random direct reads, and prints rates by queue depth, slots, and a group
/// for qbm. All lines except the group are comments of a plan.
///
/// # Errors
///
/// - [`FailureKind::Refused`]: nrs schedules the device.
/// - [`FailureKind::Other`]: no read completed in the time.
/// - Errors of opening and reading.
pub fn run(args: &Args, kernel: &dyn Kernel, out: &mut dyn Write) -> Result {
    let name = group(args)?;
    let device = MeasuredDevice::open(&args.device)?;
    if let Some(number) = &device.number {
        direct(kernel, &args.device, number)?;
    }
    let depths = depths(args.max_depth);
    // The capacity takes one more step.
    let steps = u32::try_from(depths.len() + 1).unwrap_or(u32::MAX);
    let time = args.time / steps;
    writeln!(out, "# depth   reads/s of 4 KiB, random")?;
    let mut rates = Vec::new();
    for depth in depths {
        let rate = device.rate(SMALL, depth, time)?;
        writeln!(out, "# {depth:>5} {:>9}", rate / SMALL)?;
        out.flush()?;
        rates.push((depth, rate));
    }
    let nothing = || {
        failure!(Other: "{}: no read completed in {time:?}", args.device.display();
            "increase --time")
    };
    let slots = knee(&rates).ok_or_else(nothing)?;
    writeln!(
        out,
        "# slots={slots}: smallest depth with {SAME} % of the highest rate; \
         slots=auto finds it at run time"
    )?;
    let depth = slots.max(LARGE_DEPTH);
    let rate = device.rate(LARGE, depth, time)?;
    if rate == 0 {
        return Err(nothing());
    }
    writeln!(
        out,
        "# {:.1} MB/s in reads of 1 MiB, random, depth {depth}; writes may be slower",
        rate as f64 / 1e6
    )?;
    let capacity = (rate / 100 * SAFE / 1000).max(1);
    let target = device
        .number
        .map_or(String::new(), |number| format!(" target={number}"));
    Ok(writeln!(
        out,
        "group {name} capacity={capacity}KB/s{target}"
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output_of;
    use crate::mock::Mock;

    #[test]
    fn the_least_depth_that_suffices() {
        assert_eq!(depths(1), [1]);
        assert_eq!(depths(10), [1, 2, 4, 8, 10]);
        assert_eq!(depths(1024).len(), 11);
        for (rates, want) in [
            (
                &[(1, 100), (2, 200), (4, 390), (8, 395), (16, 393)][..],
                Some(4),
            ),
            (&[(1, 100), (2, 99)], Some(1)),
            (&[(1, 0), (2, 0)], None),
        ] {
            assert_eq!(knee(rates), want);
        }
    }

    #[test]
    fn a_file_is_measured() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, vec![1; 2 << 20]).unwrap();
        let path = path.to_str().unwrap();
        let kernel = Mock::with(&[]);
        let text = output_of(&kernel, &format!("measure --time 0.5 --max-depth 3 {path}")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7, "{text}");
        let plan = nrs_sched::qbm::plan::Plan::parse(&text);
        assert!(
            plan.is_ok() && lines[6].starts_with("group disk capacity="),
            "{text}"
        );
        assert_eq!(std::fs::read(path).unwrap(), vec![1; 2 << 20]);
    }

    /// Refuses devices that nrs schedules, because the rates would be limited by slots and policy.
    #[test]
    fn what_nrs_schedules() {
        let kernel = Mock::of(&[]);
        let hint = |number: &str| {
            let done = direct(&kernel, Path::new("/dev/x"), number).err();
            done.map(|failure| (failure.kind, failure.hint.unwrap()))
        };
        for number in ["8:0", "8:1", "8:16", "253:0"] {
            assert_eq!(hint(number), None);
        }
        output_of(&kernel, "device schedule sda").unwrap();
        output_of(&kernel, "device add files /dev/sdb san").unwrap();
        let refused = |hint: &str| Some((FailureKind::Refused, hint.to_owned()));
        let disk = refused("nrsctl device unschedule sda");
        assert_eq!((hint("8:0"), hint("8:1")), (disk.clone(), disk));
        let below = refused("measure the device below: /dev/sdb");
        assert_eq!((hint("253:0"), hint("8:16")), (below, None));
    }

    #[test]
    fn what_cannot_be_measured() {
        let kernel = Mock::with(&[]);
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let small = directory.path().join("small");
        std::fs::write(&small, "x").unwrap();
        for (words, kind) in [
            ("/dev/null", FailureKind::Refused),
            ("/proc", FailureKind::Refused),
            ("/nowhere/at/all", FailureKind::NotFound),
            (small.to_str().unwrap(), FailureKind::Refused),
            ("--name a=b /dev/null", FailureKind::Usage),
        ] {
            let failure = output_of(&kernel, &format!("measure {words}")).unwrap_err();
            assert_eq!(failure.kind, kind, "{failure}");
        }
    }
}
