//! The program of operators.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    router::main()
}
