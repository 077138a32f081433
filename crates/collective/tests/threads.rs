//! Ranks that are threads: results, and what goes wrong.

use gristmill_collective::{Collective, Error, Threads, threads};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// What each rank returns, in the order of ranks.
fn each<T: Send>(ranks: Vec<Threads>, run: impl Fn(Threads) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Numbers that differ by seed and index, of very different sizes, so that the order of a sum changes its bits.
fn value(seed: usize, index: usize) -> f32 {
    let mixed = (seed * 7919 + index * 104_729 + 1).wrapping_mul(0x9E37_79B9) as u32;
    let size = 2_f32.powi((mixed % 24) as i32 - 12);
    (mixed as f32 / u32::MAX as f32 - 0.5) * size
}

fn pause(seed: usize) {
    std::thread::sleep(Duration::from_micros((seed * 7919 % 13 * 100) as u64));
}

#[test]
fn sums_are_added_in_the_order_of_ranks_whatever_rank_is_late() {
    for size in [1, 2, 3, 4, 7] {
        let results = each(threads(size, MINUTE), |rank| {
            let mut results = Vec::new();
            for call in 0..20 {
                pause(rank.rank() + call * size);
                let mut values: Vec<f32> = (0..call * 5).map(|index| value(rank.rank() + call, index)).collect();
                rank.all_reduce(&mut values).unwrap();
                results.push(values);
            }
            results
        });
        for call in 0..20 {
            for index in 0..call * 5 {
                let sum = (1..size).fold(value(call, index), |sum, rank| sum + value(rank + call, index));
                assert!(results.iter().all(|of| of[call][index].to_bits() == sum.to_bits()), "{size} {call} {index}");
            }
        }
    }
}

#[test]
fn gathered_parts_are_in_the_order_of_ranks_and_a_broadcast_has_any_length() {
    let results = each(threads(3, MINUTE), |rank| {
        let mut all = [0.0; 6];
        rank.all_gather(&[rank.rank() as f32, 0.5], &mut all).unwrap();
        let mut bytes = vec![rank.rank() as u8; rank.rank() * 10];
        rank.broadcast(2, &mut bytes).unwrap();
        let mut empty = vec![rank.rank() as u8; rank.rank()];
        rank.broadcast(0, &mut empty).unwrap();
        (all, bytes, empty)
    });
    assert!(results.iter().all(|result| *result == ([0.0, 0.5, 1.0, 0.5, 2.0, 0.5], vec![2; 20], vec![])));
}

#[test]
fn values_that_were_sent_arrive_in_order_between_other_calls() {
    let results = each(threads(3, MINUTE), |rank| {
        let (next, last) = ((rank.rank() + 1) % 3, (rank.rank() + 2) % 3);
        let mut received = [[0.0; 2]; 2];
        rank.send(next, &[rank.rank() as f32, 1.0]).unwrap();
        rank.all_reduce(&mut [1.0]).unwrap();
        rank.send(next, &[rank.rank() as f32, 2.0]).unwrap();
        received.iter_mut().for_each(|values| rank.receive(last, values).unwrap());
        received
    });
    assert_eq!(results, [[[2.0, 1.0], [2.0, 2.0]], [[0.0, 1.0], [0.0, 2.0]], [[1.0, 1.0], [1.0, 2.0]]]);
}

#[test]
fn a_rank_that_never_comes_is_named_by_all_others_within_the_deadline() {
    let start = Instant::now();
    let mut ranks = threads(3, Duration::from_millis(200));
    let silent = ranks.remove(1);
    let errors = each(ranks, |rank| (rank.all_reduce(&mut [1.0]), rank.broadcast(0, &mut vec![])));
    let expected = Err(Error::Deadline { rank: 1, operation: "all_reduce", seconds: 0.2 });
    assert_eq!(errors, vec![(expected.clone(), expected.clone()); 2]);
    assert_eq!(silent.all_reduce(&mut [1.0]), expected, "a rank that comes late gets the same error");
    assert!(start.elapsed() < 10 * SECOND);

    let ranks = threads(2, Duration::from_millis(200));
    let expected = Err(Error::Deadline { rank: 1, operation: "receive", seconds: 0.2 });
    assert_eq!(ranks[0].receive(1, &mut [0.0]), expected);
}

#[test]
fn a_broadcast_that_is_awaited_has_no_deadline_but_ends_with_the_group() {
    let have_first = Barrier::new(2);
    let results = each(threads(2, Duration::from_millis(100)), |rank| {
        let mut bytes = vec![rank.rank() as u8];
        if rank.rank() == 0 {
            std::thread::sleep(Duration::from_millis(400));
        }
        let first = rank.await_broadcast(0, &mut bytes).map(|()| bytes);
        have_first.wait();
        if rank.rank() == 0 {
            rank.abort("no more");
        }
        (first, rank.await_broadcast(0, &mut vec![]))
    });
    let lost = Error::Lost { rank: 0, reason: "no more".into() };
    assert_eq!(results, vec![(Ok(vec![0]), Err(lost)); 2]);
}

#[test]
fn a_rank_that_fails_ends_the_calls_of_all_others_with_its_reason() {
    let start = Instant::now();
    let errors = each(threads(4, MINUTE), |rank| match rank.rank() {
        2 => {
            pause(11);
            rank.abort("the model's file ends early");
            rank.all_reduce(&mut [1.0])
        }
        3 => rank.receive(0, &mut [1.0]),
        _ => rank.all_reduce(&mut [1.0]),
    });
    let expected = Error::Lost { rank: 2, reason: "the model's file ends early".into() };
    assert_eq!(errors, vec![Err(expected.clone()); 4]);
    assert_eq!(expected.to_string(), "rank 2: lost (the model's file ends early); start all ranks again");
    assert!(start.elapsed() < 10 * SECOND);
}

#[test]
fn a_thread_that_ends_ends_the_calls_that_need_it_and_no_others() {
    let start = Instant::now();
    let errors = each(threads(2, MINUTE), |rank| {
        let mut values = [1.0];
        rank.all_reduce(&mut values).unwrap();
        if rank.rank() == 1 {
            return rank.send(0, &[5.0]);
        }
        let mut sent = [0.0];
        rank.receive(1, &mut sent).unwrap();
        assert_eq!(sent, [5.0], "what was sent arrives after the sender's end");
        rank.all_reduce(&mut values)
    });
    assert_eq!(errors, [Err(Error::Lost { rank: 1, reason: "its thread ended".into() }), Ok(())]);
    assert!(start.elapsed() < 10 * SECOND);
}

#[test]
fn ranks_in_different_calls_get_the_same_error() {
    type Case = fn(&Threads) -> Result<(), Error>;
    let cases: [(Case, Case); 5] = [
        (|rank| rank.all_reduce(&mut [1.0; 3]), |rank| rank.all_reduce(&mut [1.0; 4])),
        (|rank| rank.all_reduce(&mut [1.0; 2]), |rank| rank.all_gather(&[1.0; 2], &mut [1.0; 4])),
        (|rank| rank.broadcast(0, &mut vec![]), |rank| rank.broadcast(1, &mut vec![])),
        (|rank| rank.send(1, &[1.0; 2]).and_then(|()| rank.all_reduce(&mut [1.0])), |rank| rank.receive(0, &mut [1.0])),
        (|rank| rank.all_gather(&[1.0; 2], &mut [1.0; 4]), |rank| rank.all_gather(&[1.0; 2], &mut [1.0; 5])),
    ];
    for (number, (first, second)) in cases.into_iter().enumerate() {
        let start = Instant::now();
        let errors = each(threads(2, MINUTE), |rank| if rank.rank() == 0 { first(&rank) } else { second(&rank) });
        assert!(matches!(&errors[0], Err(Error::Mismatch { .. })), "{number}: {errors:?}");
        assert_eq!(errors[0], errors[1], "{number}");
        assert!(start.elapsed() < 10 * SECOND, "{number}");
    }
}

#[test]
fn a_rank_that_does_not_exist_is_an_error_that_leaves_the_group_whole() {
    let ranks = threads(1, MINUTE);
    let expected = Err(Error::Rank { rank: 1, size: 1 });
    assert_eq!(ranks[0].broadcast(1, &mut vec![]), expected);
    assert_eq!(ranks[0].send(1, &[]), expected);
    assert_eq!(ranks[0].receive(1, &mut []), expected);
    assert_eq!(ranks[0].all_reduce(&mut []), Ok(()));
}
