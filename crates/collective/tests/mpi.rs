//! Ranks over MPI: `mpirun` starts this test as the ranks of a case. Without `mpirun` the tests say that they were skipped.

use gristmill_collective::{Collective, Error, Mpi, threads};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CASE: &str = "GRISTMILL_TEST_CASE";
const FOLDER: &str = "GRISTMILL_TEST_FOLDER";
const SOCKETS: [&str; 3] = ["--mca", "btl", "tcp,self"];
const MINUTE: Duration = Duration::from_secs(60);

/// What each rank of `mpirun` writes in a case, if it ends, and how many seconds its last call took.
fn run(ranks: usize, case: &str, options: &[&str]) -> Option<Vec<Option<(String, f64)>>> {
    if !Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mpirun (Debian: apt install openmpi-bin)");
        return None;
    }
    let test = std::env::current_exe().expect("the test");
    let name = format!("gristmill-mpi-{}-{case}-{ranks}-{}", std::process::id(), options.len());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    // When a rank has died, mpirun sends SIGTERM to all others, which a server survives until it has answered its requests; and
    // SIGKILL one second later, which is short on a loaded machine. It loses what they print.
    let done = Command::new("mpirun")
        .args(["--allow-run-as-root", "--oversubscribe", "-np", &ranks.to_string()])
        .args(["--mca", "odls_base_sigkill_timeout", "3"])
        .args(options)
        .args(["sh", "-c", "trap '' TERM; exec \"$@\"", "sh"])
        .arg(test)
        .args(["--exact", "rank_of_another_test", "--ignored", "--nocapture"])
        .env(CASE, case)
        .env(FOLDER, &folder)
        .output()
        .expect("mpirun");
    let written = |rank: usize| {
        let text = std::fs::read_to_string(folder.join(rank.to_string())).ok()?;
        let (seconds, text) = text.split_once(' ')?;
        Some((text.to_owned(), seconds.parse().ok()?))
    };
    let results: Vec<_> = (0..ranks).map(written).collect();
    std::fs::remove_dir_all(&folder).expect("the folder");
    let output = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(results.iter().any(Option::is_some), "{output}");
    Some(results)
}

fn texts(results: Vec<Option<(String, f64)>>) -> Vec<Option<String>> {
    results.into_iter().map(|result| result.map(|(text, _)| text)).collect()
}

#[test]
#[ignore = "started by other tests"]
fn rank_of_another_test() {
    let [case, folder] = [CASE, FOLDER].map(|name| std::env::var(name).expect("another test sets it"));
    let deadline = if case == "deadline" { Duration::from_millis(500) } else { MINUTE };
    let rank = Mpi::open(None, deadline).expect("MPI");
    let mut start = Instant::now();
    let result = match case.as_str() {
        "values" => exchange(&rank),
        "calls" => text(match rank.rank() {
            0 => rank.all_reduce(&mut [1.0; 4]),
            _ => rank.all_gather(&[1.0; 4], &mut [1.0; 8]),
        }),
        // Rank 0 waits longer than the deadline, which here is an error of the call after it only.
        "deadline" if rank.size() == 2 => {
            let mut bytes = vec![rank.rank() as u8 + 7];
            if rank.rank() == 0 {
                std::thread::sleep(Duration::from_millis(1500));
                assert_eq!(rank.look(), Ok(()));
            }
            rank.await_broadcast(0, &mut bytes).expect("rank 0 comes");
            if rank.rank() == 1 {
                rank.abort(&format!("{bytes:?}"));
            }
            let start = Instant::now();
            while rank.look().is_ok() && start.elapsed() < MINUTE {
                std::thread::sleep(Duration::from_millis(5));
            }
            text(rank.look())
        }
        // Rank 1 does not make the last call.
        _ => {
            // It can have the error already, if this rank is late.
            let first = rank.all_reduce(&mut [1.0]);
            start = Instant::now();
            if rank.rank() == 1 {
                fail(&rank, &case);
            }
            text(first.and_then(|()| rank.all_reduce(&mut [1.0])))
        }
    };
    let file = std::path::Path::new(&folder).join(rank.rank().to_string());
    std::fs::write(file, format!("{} {result}", start.elapsed().as_secs_f64())).expect("a file");
    if case != "values" {
        // mpirun ends all ranks when the first one has ended.
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn fail(rank: &Mpi, case: &str) {
    match case {
        "killed" => {
            // After the others have received what it sent.
            std::thread::sleep(Duration::from_millis(300));
            Command::new("kill").args(["-9", &std::process::id().to_string()]).status().expect("kill");
        }
        "stopped" => {
            std::thread::sleep(Duration::from_millis(300));
            Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status().expect("kill");
        }
        // Longer than the others wait for a sign of life.
        "slow" => std::thread::sleep(Duration::from_secs(6)),
        "abort" => rank.abort("the file ends early"),
        "deadline" => std::thread::sleep(Duration::from_secs(2)),
        other => panic!("{other}"),
    }
}

fn text(result: Result<(), Error>) -> String {
    result.map_or_else(|error| error.to_string(), |()| "no error".into())
}

/// Numbers of very different sizes, so that the order of a sum changes its bits.
fn value(seed: usize, index: usize) -> f32 {
    let mixed = (seed * 7919 + index * 104_729 + 1).wrapping_mul(0x9E37_79B9) as u32;
    (mixed as f32 / u32::MAX as f32 - 0.5) * 2_f32.powi((mixed % 24) as i32 - 12)
}

/// All calls, with one result: a hash of all bits.
fn exchange(rank: &dyn Collective) -> String {
    let (own, size) = (rank.rank(), rank.size());
    let mut hash = 0_u64;
    let mut add = |values: &[f32]| {
        values.iter().for_each(|value| hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x100_0000_01B3));
    };
    for (call, length) in [0, 1, 7, 1024, 4097, 100_003, 1_000_000].into_iter().enumerate() {
        std::thread::sleep(Duration::from_micros(((own + call) * 7919 % 13 * 100) as u64));
        let mut values: Vec<f32> = (0..length).map(|index| value(own + call, index)).collect();
        rank.all_reduce(&mut values).expect("a sum");
        add(&values);
        let part: Vec<f32> = (0..length / 3).map(|index| value(own, index)).collect();
        let mut all = vec![0.0; part.len() * size];
        rank.all_gather(&part, &mut all).expect("all parts");
        add(&all);
        let mut bytes = vec![own as u8; own * length];
        rank.broadcast(call % size, &mut bytes).expect("bytes");
        add(&[bytes.len() as f32, bytes.iter().map(|byte| f32::from(*byte)).sum()]);
        // All send before they receive, more than MPI keeps for a receiver.
        rank.send((own + 1) % size, &values).expect("a send");
        let mut received = vec![0.0; length];
        rank.receive((own + size - 1) % size, &mut received).expect("a receive");
        add(&received);
    }
    format!("{hash:x}")
}

#[test]
fn results_are_those_of_threads() {
    for (size, transport) in [(1, &[][..]), (2, &[]), (2, &SOCKETS), (3, &[])] {
        let Some(results) = run(size, "values", transport) else { return };
        let expected: Vec<_> = std::thread::scope(|scope| {
            let ranks = threads(size, MINUTE).into_iter().map(|rank| scope.spawn(move || exchange(&rank)));
            ranks.collect::<Vec<_>>().into_iter().map(|hash| hash.join().ok()).collect()
        });
        assert_eq!(texts(results), expected);
    }
}

#[test]
fn a_rank_that_never_comes_is_named_by_all_others_within_the_deadline() {
    let Some(results) = run(3, "deadline", &[]) else { return };
    let late = "rank 1: not in all_reduce after 0.5 s; look for its error, and start all ranks again";
    for (rank, result) in results.into_iter().enumerate() {
        let (text, seconds) = result.expect("an error");
        // The first that notices it tells the others.
        assert!(text.contains(late), "{rank}: {text}");
        assert!(seconds < 10.0, "{rank}: {seconds}");
    }
}

#[test]
fn a_broadcast_that_is_awaited_has_no_deadline_and_a_look_finds_a_failure_between_calls() {
    let Some(results) = run(2, "deadline", &[]) else { return };
    let lost = Some("rank 1: lost ([7]); start all ranks again".to_owned());
    assert_eq!(texts(results), [lost.clone(), lost]);
}

#[test]
fn a_rank_that_fails_ends_the_calls_of_all_others_with_its_reason() {
    let Some(results) = run(3, "abort", &[]) else { return };
    let lost = Some("rank 1: lost (the file ends early); start all ranks again".to_owned());
    assert_eq!(texts(results), [lost.clone(), lost.clone(), lost]);
}

#[test]
fn a_rank_that_is_killed_is_an_error_of_all_others_within_5_seconds() {
    for transport in [&[][..], &SOCKETS] {
        let Some(results) = run(3, "killed", transport) else { return };
        assert_eq!(results[1], None);
        for rank in [0, 2] {
            let (text, seconds) = results[rank].as_ref().expect("an error");
            assert_eq!(text, "rank 1: lost (its process ended); start all ranks again");
            assert!(*seconds < 5.0, "{rank}: {seconds}");
        }
    }
}

#[test]
fn a_rank_that_is_stopped_is_an_error_of_all_others_within_5_seconds() {
    for transport in [&[][..], &SOCKETS] {
        let Some(results) = run(3, "stopped", transport) else { return };
        for rank in [0, 2] {
            let (text, seconds) = results[rank].as_ref().expect("an error");
            assert!(text.starts_with("rank 1: lost (it has shown no sign of life for 3 s"), "{rank}: {text}");
            assert!(*seconds < 5.0, "{rank}: {seconds}");
        }
    }
}

#[test]
fn a_rank_that_computes_for_long_is_no_error() {
    let Some(results) = run(2, "slow", &[]) else { return };
    assert_eq!(texts(results), [Some("no error".to_owned()), Some("no error".to_owned())]);
}

#[test]
fn ranks_in_different_calls_get_an_error() {
    let Some(results) = run(2, "calls", &[]) else { return };
    for (rank, text) in texts(results).into_iter().enumerate() {
        let text = text.expect("an error");
        assert!(text.contains("all_reduce of values: 4") && text.contains("all_gather of values: 4"), "{rank}: {text}");
    }
}

#[test]
fn a_folder_without_the_library_is_an_error_that_names_what_to_install() {
    let error = Mpi::open(Some(&std::env::temp_dir()), MINUTE).expect_err("no library").to_string();
    assert!(error.starts_with("Open MPI: libmpi"), "{error}");
    assert!(error.ends_with("; install Open MPI 4 or 5 (Debian: apt install openmpi-bin)"), "{error}");
}
