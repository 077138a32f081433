//! The names of tensor types, for those that gristmill does not read. A type that becomes a format keeps its line.

/// Types of llama.cpp's `enum ggml_type` (ggml.h), which are not for weights.
const OTHER: &[(u32, &str)] =
    &[(9, "Q8_1"), (15, "Q8_K"), (24, "I8"), (25, "I16"), (26, "I32"), (27, "I64"), (28, "F64")];

/// Types that llama.cpp had once and reads no more.
const REMOVED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

/// Types that ik_llama.cpp alone has, by its ggml.h of August 2026. `R4`, `R8` and `R16` mark interleaved rows.
const IK_LLAMA: &[(u32, &str)] = &[
    (36, "I2_S"),
    (97, "Q8_0_X4"),
    (98, "Q8_1_X4"),
    (99, "Q8_2_X4"),
    (133, "Q6_0"),
    (134, "IQ1_BN"),
    (135, "IQ2_BN"),
    (136, "Q8_K64"),
    (137, "IQ2_K"),
    (138, "IQ3_K"),
    (141, "IQ6_K"),
    (142, "IQ2_TN"),
    (143, "IQ1_TN"),
    (147, "Q8_K16"),
    (148, "Q8_K32"),
    (149, "Q8_KR8"),
    (150, "Q8_K128"),
    (151, "Q8_KV"),
    (153, "IQ2_KT"),
    (154, "IQ3_KT"),
    (155, "IQ4_KT"),
    (158, "IQ1_KT"),
    (202, "Q4_0_R8"),
    (206, "Q5_0_R4"),
    (208, "Q8_0_R8"),
    (210, "Q2_K_R4"),
    (211, "Q3_K_R4"),
    (212, "Q4_K_R4"),
    (213, "Q5_K_R4"),
    (214, "Q6_K_R4"),
    (216, "IQ2_XXS_R4"),
    (217, "IQ2_XS_R4"),
    (218, "IQ3_XXS_R4"),
    (219, "IQ1_S_R4"),
    (220, "IQ4_NL_R4"),
    (221, "IQ3_S_R4"),
    (222, "IQ2_S_R4"),
    (223, "IQ4_XS_R8"),
    (229, "IQ1_M_R4"),
    (230, "BF16_R16"),
    (233, "Q6_0_R4"),
    (335, "IQ2_BN_R4"),
    (337, "IQ2_K_R4"),
    (338, "IQ3_K_R4"),
    (339, "IQ4_K_R4"),
    (340, "IQ5_K_R4"),
    (344, "IQ4_KS_R4"),
    (352, "IQ5_KS_R4"),
    (353, "MXFP4_R8"),
    (397, "Q8_K_R16"),
    (398, "Q8_KV_R8"),
    (399, "Q8_K_R8"),
];

/// What a number stands for and why it is refused: `IQ6_K (number 141), a format of ik_llama.cpp alone, is not supported`.
pub(super) fn refusal(id: u32) -> String {
    let lists =
        [(OTHER, ""), (REMOVED, " was removed from llama.cpp and"), (IK_LLAMA, ", a format of ik_llama.cpp alone,")];
    for (list, note) in lists {
        if let Some((_, name)) = list.iter().find(|(number, _)| *number == id) {
            return format!("{name} (number {id}){note} is not supported");
        }
    }
    format!("number {id} is unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_kernels::format::Format;
    use gristmill_kernels::format::rows::ScaledRows;

    #[test]
    fn names_of_refused_types() {
        let expected = [
            (9, "Q8_1 (number 9) is not supported"),
            (4, "Q4_2 (number 4) was removed from llama.cpp and is not supported"),
            (141, "IQ6_K (number 141), a format of ik_llama.cpp alone, is not supported"),
            (216, "IQ2_XXS_R4 (number 216), a format of ik_llama.cpp alone, is not supported"),
            (1000, "number 1000 is unknown"),
        ];
        for (number, message) in expected {
            assert_eq!(refusal(number), message);
        }
    }

    /// A number is in one list at most, and a format has the name that it has there. Up to 42 (llama.cpp) and from 133 to 158
    /// (ik_llama.cpp) each number has a name.
    #[test]
    fn every_number_has_one_meaning() {
        let known: Vec<(u32, &str)> = [OTHER, REMOVED, IK_LLAMA].into_iter().flatten().copied().collect();
        for number in 0..400 {
            let listed: Vec<&str> = known.iter().filter(|(at, _)| *at == number).map(|(_, name)| *name).collect();
            let format = Format::from_ggml_type(number).map(Format::name);
            let rows = ScaledRows::from_ggml_type(number).map(ScaledRows::name);
            let read: Vec<&str> = format.into_iter().chain(rows).collect();
            assert!(listed.len() <= 1 && read.len() <= 1, "{number}: {listed:?} {read:?}");
            if let ([listed], [read]) = (&listed[..], &read[..]) {
                assert_eq!(listed, read, "{number}");
            }
            let has_name = !listed.is_empty() || !read.is_empty();
            assert!(has_name || !matches!(number, 0..=42 | 133..=158), "{number}");
        }
    }
}
