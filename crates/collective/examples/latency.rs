//! Prints how long sums over ranks take: `mpirun -np 2 target/release/examples/latency`, or with threads if `threads` is an argument.

use gristmill_collective::{Collective, Error, Mpi, threads};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Error> {
    if std::env::args().any(|argument| argument == "threads") {
        return std::thread::scope(|scope| {
            let ranks: Vec<_> =
                threads(2, DEADLINE).into_iter().map(|rank| scope.spawn(move || measure(&rank))).collect();
            ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
        });
    }
    measure(&Mpi::open(None, DEADLINE)?)
}

fn measure(rank: &dyn Collective) -> Result<(), Error> {
    for bytes in [4 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20] {
        let mut values = vec![1.0; bytes / size_of::<f32>()];
        let mut times = Vec::new();
        for _ in 0..if bytes > 1 << 19 { 50 } else { 1000 } {
            let start = Instant::now();
            rank.all_reduce(&mut values)?;
            times.push(start.elapsed());
            values.fill(1.0);
        }
        times.sort();
        if rank.rank() == 0 {
            println!(
                "{:>5} KiB: median {:?}, p99 {:?}",
                bytes >> 10,
                times[times.len() / 2],
                times[times.len() * 99 / 100]
            );
        }
    }
    Ok(())
}
