//! The op suite on a CUDA device of this machine, and on the simulated one.

macro_rules! parts {
    ($($part:ident = $module:ident::$function:ident,)*) => {
        $(#[test] fn $part() { run(stringify!($part)); })*
    };
}

#[cfg(all(target_arch = "x86_64", unix))]
mod simulated {
    use gristmill_conformance::{op_suite, simulated::Simulator};

    fn run(part: &str) {
        op_suite::simulated(part, "simulated CUDA", &|threads| Simulator::cuda(threads, gpu_sim::Mode::Fast));
    }

    gristmill_suite::with_parts!(parts);
}

mod device {
    use gristmill_conformance::op_suite;
    use gristmill_cuda::{CudaDevice, Options, driver};

    fn run(part: &str) {
        let is_there = !driver::count().is_ok_and(|devices| devices == 0);
        op_suite::device(part, "CUDA", is_there, &|_| CudaDevice::open(0)?.backend(Options::default()));
    }

    gristmill_suite::with_parts!(parts);
}
