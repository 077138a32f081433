//! The token of level `amx`, and the tiles in memory.
//!
//! # Tiles need a permission
//!
//! Linux saves tiles only for processes that ask; a tile instruction in others is an illegal instruction. *No tile
//! instruction runs without the permission: [`Amx::detect`] asks, and is the only source of the token.* The system refuses
//! if a thread has a signal stack that is too small for tiles. The permission is of the process, so threads that started
//! before have it too. A process that does not name the level does not ask: its signal stacks may stay small.

use super::Avx512;
use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Proof that the CPU has AMX tiles with products of bfloat16, AVX-512 FP16 and BF16, and all features that [`Avx512`]
/// names, and that the system lets this process use tiles.
#[derive(Clone, Copy, Debug)]
pub struct Amx(Avx512);

impl Amx {
    /// The token, if this CPU has the features and the system permits tiles.
    pub fn detect() -> Option<Self> {
        let avx512 = Self::found()?;
        permitted().then_some(Self(avx512))
    }

    /// Whether this CPU has the features, but the system refuses tiles to this process.
    pub(crate) fn is_refused() -> bool {
        Self::found().is_some() && !permitted()
    }

    /// The token of the level without tiles.
    pub fn avx512(self) -> Avx512 {
        self.0
    }

    /// The token without tiles, if the CPU has the features and the system saves tiles.
    fn found() -> Option<Avx512> {
        let has_vectors = is_x86_feature_detected!("avx512fp16") && is_x86_feature_detected!("avx512bf16");
        Avx512::detect().filter(|_| cfg!(target_os = "linux") && has_vectors && has_tiles())
    }
}

/// Whether the CPU has tiles with products of bfloat16, and the system enables their state.
fn has_tiles() -> bool {
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    /// State of the configuration and of the tiles.
    const STATE: u64 = 3 << 17;
    // Callers have found AVX-512, so there are XGETBV and leaf 7.
    __cpuid_count(7, 0).edx & BF16_AND_TILES == BF16_AND_TILES && enabled_state() & STATE == STATE
}

/// The register XCR0. The CPU must have AVX.
fn enabled_state() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: a CPU with AVX has the instruction, which reads a register.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Whether the system lets this process use tiles. Asks once.
fn permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| {
        const ARCH_PRCTL: i64 = 158;
        const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
        const XFEATURE_XTILEDATA: i64 = 18;
        let refused: i64;
        // SAFETY: on Linux, where `found` asks, this call has integer arguments and changes a permission only.
        unsafe {
            asm!("syscall", inlateout("rax") ARCH_PRCTL => refused, in("rdi") ARCH_REQ_XCOMP_PERM,
                in("rsi") XFEATURE_XTILEDATA, out("rcx") _, out("r11") _, options(nostack));
        }
        refused == 0
    })
}

/// One row of a tile.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; 64]);

/// Sixteen rows.
pub(super) type Tile = [Line; 16];

/// Zeros.
pub(super) const ZERO: Tile = [Line([0; 64]); 16];
