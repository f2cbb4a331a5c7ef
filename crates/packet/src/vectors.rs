//! Which of the forms of a hot loop runs: for AVX-512, for AVX2, or for any processor.
//!
//! Loops whose speed depends on it are compiled for each, and choose when what they belong to is made. The environment variable
//! `BRICKWAY_CPU` has a processor that has more work as one that has less, so that the other forms can be measured there.

use std::sync::OnceLock;

/// The widest vectors that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vectors {
    /// None, and no instruction that plain x86-64 lacks.
    None,
    /// AVX2, POPCNT, BMI1 and BMI2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// These, and AVX-512 F and BW.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The environment variable.
const VARIABLE: &str = "BRICKWAY_CPU";

impl Vectors {
    /// The widest of this processor, or those that `BRICKWAY_CPU` names if that has less.
    pub fn best() -> Self {
        static BEST: OnceLock<Vectors> = OnceLock::new();
        *BEST.get_or_init(|| {
            Self::chosen().ok().flatten().map_or(Self::here(), |chosen| chosen.min(Self::here()))
        })
    }

    /// What `BRICKWAY_CPU` names; `None` where it is not set.
    ///
    /// # Errors
    ///
    /// It names something else than `avx512`, `avx2` or `scalar`.
    pub fn chosen() -> Result<Option<Self>, String> {
        let Some(name) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let all = Self::ALL.iter().find(|vectors| name == vectors.name());
        let Some(&vectors) = all else {
            let names: Vec<&str> = Self::ALL.iter().map(|vectors| vectors.name()).collect();
            return Err(format!(
                "{VARIABLE}: expected {}, got '{}'",
                names.join(" or "),
                name.to_string_lossy()
            ));
        };
        Ok(Some(vectors))
    }

    /// Those that this program knows.
    const ALL: &[Self] = &[
        Self::None,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
    ];

    /// The widest of this processor.
    fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let bits = is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            let avx2 = bits && is_x86_feature_detected!("avx2");
            if avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                return Self::Avx512;
            }
            if avx2 {
                return Self::Avx2;
            }
        }
        Self::None
    }

    /// All that this processor can, the narrowest first: for tests.
    pub fn all_here() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|vectors| *vectors <= Self::here())
    }

    /// As in `BRICKWAY_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_are_among_those_of_the_processor() {
        let all: Vec<Vectors> = Vectors::all_here().collect();
        assert_eq!(all[0], Vectors::None);
        assert!(all.contains(&Vectors::best()) && all.is_sorted());
    }
}
