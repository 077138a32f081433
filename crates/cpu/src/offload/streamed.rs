//! Experts that are read from a file when they are chosen. Memory keeps those that were used last.
//!
//! A weight has memory for a number of experts, its slots. A product first multiplies the experts that are in memory, while
//! threads read the others. A thread of the pool that has nothing else to multiply waits for the next expert that arrives.
//!
//! Invariant: an expert that is multiplied later holds no slot that an earlier one needs; because slots go to experts in the
//! order of [`State::pending`], products multiply in this order, and each gives its slot away when its last chunk is done.
//! Checked by the tests of this module with one slot.
//!
//! # Experts can stay in the file
//!
//! See `cpu/src/streamed.rs`, `readers.rs`. A weight of `Location::File` has memory for some experts, its slots, and a
//! `MatrixSource` that reads a matrix (`model/src/weights/streamed.rs`, over `files/src/gguf/reader.rs`). When the
//! router has chosen, `Experts` requests the experts of all its products (`Kernels::request_experts`). Threads read
//! them and arrange their tiles. A product multiplies experts in memory first. A thread of the pool with nothing else
//! to multiply waits for the next expert. The least recently used expert is evicted.
//!
//! - *The bits are those of experts in memory, because the tiles are, and a row depends on one expert (tests
//!   `logits_are_those_of_a_model_in_memory`, `bits_are_those_of_experts_in_memory`).*
//! - *Invariant: no product waits for a slot that a later expert has; because slots are given in the order in which
//!   experts are multiplied, and one product of a weight runs at a time (tests
//!   `callers_do_not_wait_for_each_other_forever`, and all with one slot).*
//! - *A failed read ends the product with an error, after all other chunks. The next product reads again. A file that
//!   has changed is such a failure: size and time are compared after each read (test
//!   `a_file_that_changes_is_an_error`). Tables are copied from the map, so a truncated file cannot end the process.*
//! - *With a GPU, the CPU that computes its experts reads them: the weight is of `Location::Host`, and the host's part
//!   of it of `Location::File`. The bits are those of experts in host memory (test
//!   `experts_in_the_file_change_no_bit`).*
//!
//! Reads are blocking calls of eight threads, not io_uring: its crate needs `unsafe` for each submission, and the calls
//! already keep the disk busy (measured (`docs/performance-notes.md`)).

use super::readers::{ReadQueue, lock};
use crate::layout::{self, Tiles};
use gristmill_kernels::error::{Error, Result};
use gristmill_kernels::offload::StreamedTensor;
use gristmill_kernels::weight::{Role, TensorShape};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The tensors of one expert in tiles.
type ExpertTiles = Vec<Tiles>;

/// The matrices of a weight, most of which are in a file.
pub(crate) struct Streamed {
    tensors: Vec<StreamedTensor>,
    slots: usize,
    /// Whether the choices of its products are counted: once for gate, up and down.
    counts_choices: bool,
    /// Held by a product: two products that wait for each other's slots would never end.
    turn: Mutex<()>,
    state: Mutex<State>,
    arrived: Condvar,
    queue: Arc<ReadQueue>,
}

#[derive(Default)]
struct State {
    places: Vec<Place>,
    /// Memory of slots that have no expert.
    free: Vec<ExpertTiles>,
    /// Experts that wait for a slot, in the order in which they are read.
    pending: VecDeque<usize>,
    clock: u64,
}

/// The state of one expert.
#[derive(Default)]
struct Place {
    content: Content,
    /// The running product has not yet multiplied it, so that it keeps its slot.
    is_wanted: bool,
    /// No product has used it since it was read.
    is_new: bool,
    used_at: u64,
}

#[derive(Default)]
enum Content {
    #[default]
    Absent,
    Pending,
    Reading,
    InMemory(Arc<ExpertTiles>),
    Failed {
        tensor: String,
        reason: String,
    },
}

impl Streamed {
    /// Allocates slots; the tensors have the same number of experts, and were checked.
    pub(crate) fn new(
        tensors: &[StreamedTensor],
        role: Role,
        slots: usize,
        queue: &Arc<ReadQueue>,
    ) -> Result<Arc<Self>> {
        let experts = tensors.first().map_or(0, |tensor| tensor.shape.experts);
        let one = |tensor: &StreamedTensor| Tiles::zeroed(&TensorShape { experts: 1, ..tensor.shape });
        let slot = |_| tensors.iter().map(one).collect::<Result<ExpertTiles>>();
        let state = State {
            places: (0..experts).map(|_| Place::default()).collect(),
            free: (0..slots).map(slot).collect::<Result<_>>()?,
            ..State::default()
        };
        Ok(Arc::new(Self {
            tensors: tensors.to_vec(),
            slots,
            counts_choices: role != Role::Matrix,
            turn: Mutex::new(()),
            state: Mutex::new(state),
            arrived: Condvar::new(),
            queue: Arc::clone(queue),
        }))
    }

    /// The shapes of the tensors.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = TensorShape> {
        self.tensors.iter().map(|tensor| tensor.shape)
    }

    /// Bytes of all slots.
    pub(crate) fn bytes(&self) -> usize {
        let slots = self.shapes().map(|shape| layout::bytes(&TensorShape { experts: self.slots, ..shape }));
        usize::try_from(slots.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
    }

    /// Starts to read experts of the next product, as many as have slots. `counts` has the pairs of each expert.
    pub(crate) fn request(self: &Arc<Self>, counts: &[u32]) {
        let mut state = lock(&self.state);
        state.clock += 1;
        let now = state.clock;
        let (there, absent): (Vec<usize>, Vec<usize>) =
            chosen(counts).into_iter().partition(|&expert| state.places[expert].is_coming());
        // Experts that are used next are evicted last.
        there.iter().for_each(|&expert| state.places[expert].used_at = now);
        for &expert in absent.iter().take(self.slots.saturating_sub(there.len())) {
            state.places[expert].used_at = now;
            state.push_pending(expert);
        }
        self.read_pending(&mut state);
    }

    /// Starts a product of `chunks` chunks for each tile of pairs. `tiles` has the expert of each tile. Also returns the order
    /// in which the tiles must be multiplied.
    pub(crate) fn product<'a>(
        self: &'a Arc<Self>,
        counts: &[u32],
        tiles: &[usize],
        chunks: usize,
    ) -> (StreamedProduct<'a>, Vec<usize>) {
        let turn = lock(&self.turn);
        let mut left = vec![0; counts.len()];
        tiles.iter().for_each(|&expert| left[expert] += chunks);
        let left = left.into_iter().map(AtomicUsize::new).collect();
        let mut state = lock(&self.state);
        let order = self.start(&mut state, counts);
        self.read_pending(&mut state);
        drop(state);
        let mut rank = vec![0; counts.len()];
        order.iter().enumerate().for_each(|(position, &expert)| rank[expert] = position);
        let mut tile_order: Vec<usize> = (0..tiles.len()).collect();
        tile_order.sort_by_key(|&tile| rank[tiles[tile]]);
        (StreamedProduct { streamed: self, _turn: turn, left, failure: Mutex::new(None) }, tile_order)
    }

    /// Marks the experts of a product, queues those that are missing, and returns all in the order of their arrival.
    fn start(&self, state: &mut State, counts: &[u32]) -> Vec<usize> {
        let mut order = chosen(counts);
        let (mut hits, mut misses) = (0, 0);
        for &expert in &order {
            let place = &mut state.places[expert];
            place.is_wanted = true;
            let is_hit = matches!(place.content, Content::InMemory(_)) && !place.is_new;
            *(if is_hit { &mut hits } else { &mut misses }) += u64::from(counts[expert]);
            if !place.is_coming() {
                state.push_pending(expert);
            }
        }
        if self.counts_choices {
            self.queue.count_choices(hits, misses);
        }
        let position = |expert: usize| state.pending.iter().position(|&pending| pending == expert);
        order.sort_by_cached_key(|&expert| match state.places[expert].content {
            Content::InMemory(_) => 0,
            Content::Reading => 1,
            _ => position(expert).map_or(usize::MAX, |position| 2 + position),
        });
        order
    }

    /// Gives slots to pending experts as long as there are some, and queues their reads.
    fn read_pending(self: &Arc<Self>, state: &mut State) {
        while let Some(&expert) = state.pending.front() {
            let Some(tiles) = state.free.pop().or_else(|| state.evict()) else { return };
            state.pending.pop_front();
            state.places[expert].content = Content::Reading;
            let streamed = Arc::clone(self);
            self.queue.push(Box::new(move || streamed.read(expert, tiles)));
        }
    }

    /// Reads an expert, on a thread of the queue.
    fn read(self: &Arc<Self>, expert: usize, mut tiles: ExpertTiles) {
        let mut read = || {
            self.tensors.iter().zip(&mut tiles).try_for_each(|(tensor, tiles)| {
                read_matrix(tensor, expert, tiles).map_err(|reason| (tensor.name.clone(), reason))
            })
        };
        let done = catch_unwind(AssertUnwindSafe(&mut read));
        let done = done.unwrap_or_else(|_| Err((self.tensors[0].name.clone(), "the read panicked".to_owned())));
        let mut state = lock(&self.state);
        match done {
            Ok(()) => {
                let bytes = self.shapes().map(|shape| shape.matrix_bytes()).fold(0, u64::saturating_add);
                self.queue.count_read(bytes);
                let place = &mut state.places[expert];
                (place.content, place.is_new) = (Content::InMemory(Arc::new(tiles)), true);
            }
            Err((tensor, reason)) => {
                state.free.push(tiles);
                state.places[expert].content = Content::Failed { tensor, reason };
            }
        }
        self.read_pending(&mut state);
        self.arrived.notify_all();
    }

    /// Waits for an expert of the running product.
    fn wait(&self, expert: usize) -> Result<Arc<ExpertTiles>> {
        let mut state = lock(&self.state);
        loop {
            match &state.places[expert].content {
                Content::InMemory(tiles) => return Ok(Arc::clone(tiles)),
                Content::Failed { tensor, reason } => {
                    return Err(Error::Read { tensor: tensor.clone(), expert, reason: reason.clone() });
                }
                Content::Absent | Content::Pending | Content::Reading => {
                    state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The running product has multiplied an expert.
    fn release(self: &Arc<Self>, expert: usize) {
        let mut state = lock(&self.state);
        state.clock += 1;
        let now = state.clock;
        let place = &mut state.places[expert];
        (place.is_wanted, place.is_new, place.used_at) = (false, false, now);
        self.read_pending(&mut state);
    }
}

impl State {
    fn push_pending(&mut self, expert: usize) {
        self.places[expert].content = Content::Pending;
        self.pending.push_back(expert);
    }

    /// The slot of the expert that was used the longest time ago, of those that no product needs.
    fn evict(&mut self) -> Option<ExpertTiles> {
        let is_idle = |place: &Place| {
            !place.is_wanted && matches!(&place.content, Content::InMemory(tiles) if Arc::strong_count(tiles) == 1)
        };
        let idle = self.places.iter_mut().filter(|place| is_idle(place));
        match std::mem::take(&mut idle.min_by_key(|place| place.used_at)?.content) {
            Content::InMemory(tiles) => Arc::into_inner(tiles),
            _ => None,
        }
    }
}

impl Place {
    /// Whether it is in memory, or will be without another request.
    fn is_coming(&self) -> bool {
        !matches!(self.content, Content::Absent | Content::Failed { .. })
    }
}

/// Experts with pairs. Those with the most pairs are last, so that they are evicted last.
fn chosen(counts: &[u32]) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..counts.len()).filter(|&expert| counts[expert] > 0).collect();
    chosen.sort_by_key(|&expert| counts[expert]);
    chosen
}

/// Reads one matrix into tiles.
fn read_matrix(tensor: &StreamedTensor, expert: usize, tiles: &mut Tiles) -> std::result::Result<(), String> {
    let expected = tensor.shape.matrix_bytes();
    let mut found = 0;
    tensor.source.read(expert, &mut |bytes| {
        found = bytes.len() as u64;
        if found == expected {
            tiles.fill(bytes);
        }
    })?;
    if found == expected { Ok(()) } else { Err(format!("{found} bytes were read (expected {expected})")) }
}

/// A product with experts that are in a file. Other products of the weight wait until it is dropped.
pub(crate) struct StreamedProduct<'a> {
    streamed: &'a Arc<Streamed>,
    _turn: MutexGuard<'a, ()>,
    /// Chunks of each expert that are not done.
    left: Vec<AtomicUsize>,
    /// The first failure.
    failure: Mutex<Option<Error>>,
}

impl StreamedProduct<'_> {
    /// Calls `multiply` with the tensors of an expert, for one of its chunks. Waits until the expert is in memory. If it cannot be
    /// read, nothing is called, and [`Self::finish`] returns the error.
    pub(crate) fn with(&self, expert: usize, multiply: impl FnOnce(&[Tiles])) {
        // Dropped last, after the tiles.
        let _chunk = Chunk { product: self, expert };
        match self.streamed.wait(expert) {
            Ok(tiles) => multiply(&tiles),
            Err(error) => {
                lock(&self.failure).get_or_insert(error);
            }
        }
    }

    /// The first error of a read.
    pub(crate) fn finish(self) -> Result<()> {
        let failure = lock(&self.failure).take();
        failure.map_or(Ok(()), Err)
    }
}

/// A chunk of a product, done when it is dropped.
struct Chunk<'a> {
    product: &'a StreamedProduct<'a>,
    expert: usize,
}

impl Drop for Chunk<'_> {
    fn drop(&mut self) {
        let StreamedProduct { streamed, left, .. } = self.product;
        if left[self.expert].fetch_sub(1, Ordering::AcqRel) == 1 {
            streamed.release(self.expert);
        }
    }
}

impl Drop for StreamedProduct<'_> {
    /// Frees experts of chunks that did not run, because another chunk panicked.
    fn drop(&mut self) {
        let unfinished =
            self.left.iter_mut().enumerate().filter_map(|(expert, left)| (*left.get_mut() > 0).then_some(expert));
        let unfinished: Vec<usize> = unfinished.collect();
        unfinished.into_iter().for_each(|expert| self.streamed.release(expert));
    }
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Streamed({:?}, {} slots)", self.shapes().collect::<Vec<_>>(), self.slots)
    }
}
