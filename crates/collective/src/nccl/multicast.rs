//! NVLink multicast, which NCCL uses where it finds it.

#![allow(unsafe_code)]

/// Read by NCCL when it starts. Versions from 2.31 on have a setting of communicators too, which needs no variable.
const VARIABLE: &str = "NCCL_NVLS_ENABLE";

/// Turns NVLink multicast off in NCCL, for the rest of the process: it needs a fabric that containers often lack, and a failure can put the
/// GPUs of a host out of service. It is a variable of the environment, so a process must call it before it has a second thread, else
/// it changes nothing. A value that the user has set stays.
pub fn disable_multicast() {
    if std::env::var_os(VARIABLE).is_none() && has_one_thread() {
        // SAFETY: no other thread can read the environment, because there is none.
        unsafe { std::env::set_var(VARIABLE, "0") };
    }
}

/// Linux lists the threads of a process; NCCL is only there.
fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

#[cfg(test)]
mod tests {
    /// Tests are threads, so the variable must stay as it is.
    #[test]
    fn a_process_with_threads_is_left_alone() {
        let before = std::env::var_os(super::VARIABLE);
        super::disable_multicast();
        assert_eq!(std::env::var_os(super::VARIABLE), before);
    }
}
