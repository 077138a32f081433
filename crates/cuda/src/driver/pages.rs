//! A ring of staging pages: which bytes the next copy can use, and which event must be reached first.
//!
//! # Small copies do not wait
//!
//! See `cuda/src/driver/pages.rs`, `staging.rs`. Copies of up to 64 KiB go through a ring of four pinned pages. Leaving
//! a page records an event; reuse waits for the event. `Gpu::start_read` starts a copy to the host. Waiting for this
//! copy waits only for the work that was submitted before it.

/// Bytes per page; also the maximum size of a copy.
pub(super) const PAGE: usize = 1 << 16;
/// Number of pages. Reuse of a page waits for work that is three pages old.
pub(super) const PAGES: usize = 4;
/// Alignment of each copy's bytes.
const ALIGNMENT: usize = 64;

/// Events in stream order, one per page.
pub(super) trait Marks {
    /// A failure.
    type Error;
    /// Records a page's event after all work submitted so far.
    fn set(&mut self, page: usize) -> Result<(), Self::Error>;
    /// Waits for the work before a page's event.
    fn wait(&mut self, page: usize) -> Result<(), Self::Error>;
}

/// A ring of pinned pages. Leaving a page records an event; reuse waits for the event.
#[derive(Debug, Default)]
pub(super) struct Pages {
    page: usize,
    /// Bytes of the page that copies use.
    taken: usize,
    /// Whether each page has an event that was not waited for.
    marked: [bool; PAGES],
}

impl Pages {
    /// The offset of this number of free bytes, at most [`PAGE`]. The caller must submit the copy that reads the bytes
    /// before it allocates others.
    pub(super) fn take<M: Marks>(&mut self, bytes: usize, marks: &mut M) -> Result<usize, M::Error> {
        if self.taken + bytes > PAGE {
            marks.set(self.page)?;
            self.marked[self.page] = true;
            let next = (self.page + 1) % PAGES;
            if self.marked[next] {
                marks.wait(next)?;
                self.marked[next] = false;
            }
            (self.page, self.taken) = (next, 0);
        }
        let start = self.page * PAGE + self.taken;
        self.taken += bytes.next_multiple_of(ALIGNMENT);
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// A device that runs as late as possible: it reads staging memory when a copy is done, not when it is submitted.
    #[derive(Default)]
    struct Late {
        /// Copies in flight: the offset of their bytes, the number of bytes, and their contents.
        given: VecDeque<(usize, usize, u8)>,
        /// Numbers of copies submitted and done.
        counts: [usize; 2],
        marks: [usize; PAGES],
        memory: Vec<u8>,
        waits: usize,
    }

    impl Late {
        fn run(&mut self, until: usize) {
            while self.counts[1] < until {
                let (start, bytes, value) = self.given.pop_front().expect("a copy that was given");
                assert!(self.memory[start..start + bytes].iter().all(|&byte| byte == value), "overwritten");
                self.counts[1] += 1;
            }
        }
    }

    impl Marks for Late {
        type Error = ();

        fn set(&mut self, page: usize) -> Result<(), ()> {
            self.marks[page] = self.counts[0];
            Ok(())
        }

        fn wait(&mut self, page: usize) -> Result<(), ()> {
            self.waits += 1;
            self.run(self.marks[page]);
            Ok(())
        }
    }

    fn write(pages: &mut Pages, device: &mut Late, bytes: usize, value: u8) {
        let start = pages.take(bytes, device).unwrap();
        assert!(start.is_multiple_of(ALIGNMENT) && start / PAGE == (start + bytes - 1) / PAGE);
        device.memory[start..start + bytes].fill(value);
        device.given.push_back((start, bytes, value));
        device.counts[0] += 1;
    }

    proptest! {
        #[test]
        fn no_copy_is_overwritten_before_it_is_done(
            writes in prop::collection::vec((1usize..=PAGE, 0usize..3), 1..200),
        ) {
            let mut pages = Pages::default();
            let mut device = Late { memory: vec![0; PAGE * PAGES], ..Late::default() };
            for (number, &(bytes, ahead)) in writes.iter().enumerate() {
                // Small and large copies.
                let bytes = if number % 3 == 0 { bytes } else { bytes.div_ceil(100) };
                write(&mut pages, &mut device, bytes, number as u8);
                device.run((device.counts[1] + ahead).min(device.counts[0]));
            }
            device.run(device.counts[0]);
        }
    }

    #[test]
    fn the_device_is_waited_for_once_a_page() {
        let mut pages = Pages::default();
        let mut device = Late { memory: vec![0; PAGE * PAGES], ..Late::default() };
        let of_page = PAGE / ALIGNMENT;
        for number in 0..PAGES * of_page {
            write(&mut pages, &mut device, 12, number as u8);
        }
        assert_eq!((device.waits, device.given.len()), (0, PAGES * of_page));
        write(&mut pages, &mut device, 1, 0);
        assert_eq!((device.waits, device.counts[1]), (1, of_page));
    }

    #[test]
    fn a_wait_that_fails_takes_nothing() {
        struct Broken(bool);
        impl Marks for Broken {
            type Error = ();
            fn set(&mut self, _page: usize) -> Result<(), ()> {
                Ok(())
            }
            fn wait(&mut self, _page: usize) -> Result<(), ()> {
                if self.0 { Err(()) } else { Ok(()) }
            }
        }
        let mut pages = Pages::default();
        let mut device = Broken(true);
        for page in 0..PAGES {
            assert_eq!(pages.take(PAGE, &mut device), Ok(page * PAGE));
        }
        assert_eq!([pages.take(1, &mut device), pages.take(1, &mut device)], [Err(()); 2]);
        device.0 = false;
        assert_eq!(pages.take(1, &mut device), Ok(0));
    }
}
