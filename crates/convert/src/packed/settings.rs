//! The quantisation that `config.json` declares, and files of older programs next to it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::error::ConvertError;

const CONFIG: &str = "quantization_config";
const METHOD: &str = "quant_method";

/// How quantised tensors are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// `qweight`, `qzeros`, `scales` and `g_idx`.
    Gptq {
        packing: GptqPacking,
        /// Groups may have any columns.
        ordered: bool,
    },
    /// `qweight`, `qzeros` and `scales`.
    Awq,
    /// Names and types of the tensors say it: `weight_packed`, or `weight`, with `weight_scale` and others.
    ByTensors,
}

/// How GPTQ packs codes and zero points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GptqPacking {
    /// `gptq`: zero points are stored less one.
    LessOne,
    /// `gptq_v2`.
    AsTheyAre,
    /// `gptq_p`: as they are, and codes are split into parts.
    Planes,
}

/// Settings of quantised weights.
pub(crate) struct Packed {
    pub(super) method: Method,
    /// Bits of a code; `None` if modules may differ.
    pub(super) bits: Option<usize>,
    /// Columns of a group; `None` if modules may differ.
    pub(super) group: Option<Group>,
    /// Bits that AutoRound states of modules.
    pub(super) modules: BTreeMap<String, usize>,
    /// Bits of integer codes in any module.
    pub(super) widths: Vec<usize>,
    /// Rows and columns of a block of FP8 with one scale.
    pub(crate) block: Option<[usize; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Of(usize),
    /// A row is a group.
    Row,
}

/// Quantised models that are not read, and what to take instead.
const REFUSED: &[(&str, &str)] = &[
    ("bitsandbytes", UNQUANTISED),
    ("hqq", UNQUANTISED),
    ("torchao", UNQUANTISED),
    ("quanto", UNQUANTISED),
    ("eetq", UNQUANTISED),
    ("exl2", GGUF),
    ("exl3", GGUF),
    ("aqlm", GGUF),
    ("vptq", GGUF),
    ("spqr", GGUF),
    ("higgs", GGUF),
    ("quip", GGUF),
    ("bitnet", GGUF),
    ("quark", "the model's folder in FP8, compressed-tensors or NVFP4, or a GGUF file of it"),
    ("marlin", "the model's folder as GPTQ, from which it was made"),
];

const UNQUANTISED: &str = "the unquantised model, quantised to Q4_K_M when it is opened, or a GGUF file of it";
const GGUF: &str = "a GGUF file of the model, or the unquantised model, quantised to Q4_K_M when it is opened";

const READ: &str = "gptq, awq, auto-round, compressed-tensors, fp8, fbgemm_fp8, modelopt, mxfp4";

/// What changes the results of quantised matrices and is not read: adapters and rotations of GPTQModel, and rotations of
/// AutoRound, whose inputs are rotated when the model runs.
const ADAPTERS_AND_ROTATIONS: [&str; 4] = ["adapter", "rotation", "rotation_config", "spinquant_config"];

/// The formats of compressed-tensors that are read.
const FORMATS: &[&str] = &[
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
    "dense",
];

/// The algorithms of ModelOpt that are read.
const ALGORITHMS: &[&str] = &[
    "FP8",
    "FP8_PER_CHANNEL_PER_TOKEN",
    "FP8_PB_WO",
    "FP8_PB_REAL",
    "NVFP4",
    "W4A16_NVFP4",
    "W4A8_NVFP4_FP8",
    "MXFP8",
    "MIXED_PRECISION",
];

/// Files of older programs with the settings, and the name of the object within; `quant_method` is that of the file.
const FILES: [(&str, Option<&str>, &str); 3] = [
    ("hf_quant_config.json", Some("quantization"), "modelopt"),
    ("quantize_config.json", None, "gptq"),
    ("quant_config.json", None, "awq"),
];

/// The settings of quantised weights in `config.json`, or in a file of an older program.
pub(crate) fn config(folder: &Path, config: &Config) -> Result<Option<Config>, ConvertError> {
    // transformers declares the setting as optional.
    if let Some(found) = config.clone().without_nulls(&[CONFIG]).object(CONFIG)? {
        return Ok(Some(found));
    }
    for (file, within, method) in FILES {
        let path = folder.join(file);
        if !path.is_file() {
            continue;
        }
        let all = Config::read(&path)?;
        let found = match within {
            Some(within) => all.object(within)?,
            None => Some(all),
        };
        let defaults = Map::from_iter([(METHOD.to_owned(), method.into())]);
        return Ok(found.map(|found| found.with_defaults(&defaults)));
    }
    Ok(None)
}

impl Packed {
    /// Reads the settings of quantised weights; `None` for methods whose weights are read elsewhere.
    pub(crate) fn read(settings: &Config) -> Result<Option<Packed>, ConvertError> {
        // Programs write optional settings as `null`.
        let settings = &settings.clone().without_nulls(&[
            METHOD,
            "checkpoint_format",
            "format",
            "version",
            "packing_format",
            "quant_algo",
            "desc_act",
            "dynamic",
            "extra_config",
            "modules_in_block_to_quantize",
            "sparsity_config",
            "transform_config",
            "block_structure",
        ]);
        let method = settings.text(METHOD)?.unwrap_or_default().to_lowercase().replace('_', "-");
        // transformers reads these settings without a method too.
        let is_of_bitsandbytes = ["load_in_4bit", "load_in_8bit"].iter().any(|key| settings.value(key).is_some());
        let method = match method.trim_start_matches("intel/") {
            "" if is_of_bitsandbytes => {
                let expected = format!("{READ}; take {UNQUANTISED}");
                return Err(settings.wrong(METHOD, &"bitsandbytes".into(), expected));
            }
            "" | "mxfp4" | "fp8" => return Ok(None),
            "gptq" => gptq(settings)?,
            "awq" => awq(settings)?,
            "auto-round" => auto_round(settings)?,
            "compressed-tensors" => {
                compressed_tensors(settings)?;
                Method::ByTensors
            }
            "modelopt" | "modelopt-fp4" | "modelopt-mixed" | "modelopt-mxfp8" => {
                // Exports of late have groups as compressed-tensors has them, and the algorithm next to them.
                one_of(settings, "quant_algo", ALGORITHMS, "FP8 or NVFP4 of ModelOpt, or a GGUF file of the model")?;
                Method::ByTensors
            }
            "fbgemm-fp8" => Method::ByTensors,
            other => {
                let known = REFUSED.iter().find(|(name, _)| other.starts_with(name));
                let expected = known.map_or_else(
                    || format!("{READ}, or no {METHOD} and the codes of MLX; take the unquantised model"),
                    |(_, instead)| format!("{READ}; take {instead}"),
                );
                return Err(settings.wrong(METHOD, &settings.text(METHOD)?.into(), expected));
            }
        };
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        for key in ADAPTERS_AND_ROTATIONS {
            if let Some(value) = settings.value(key).filter(|value| !is_empty(value)) {
                return Err(settings.wrong(key, value, format!("none: it is not read; take a model without {key}")));
            }
        }
        let (bits, group) = match method {
            Method::ByTensors => (None, None),
            _ => widths(settings)?,
        };
        let (widths, block) = groups(settings)?;
        Ok(Some(Packed { method, bits, group, modules: of_modules(settings), widths, block }))
    }
}

/// Refuses a text that is not one of these, in any case.
fn one_of(settings: &Config, key: &str, known: &[&str], expected: &str) -> Result<(), ConvertError> {
    match settings.text(key)? {
        Some(found) if !known.iter().any(|known| known.eq_ignore_ascii_case(found)) => {
            Err(settings.wrong(key, &found.into(), expected))
        }
        _ => Ok(()),
    }
}

fn gptq(settings: &Config) -> Result<Method, ConvertError> {
    let key = if settings.value("checkpoint_format").is_some() { "checkpoint_format" } else { "format" };
    let known = [("gptq", GptqPacking::LessOne), ("gptq_v2", GptqPacking::AsTheyAre), ("gptq_p", GptqPacking::Planes)];
    one_of(
        settings,
        key,
        &known.map(|(name, _)| name),
        "gptq, gptq_v2 or gptq_p; take the model's folder with one of them",
    )?;
    let found = settings.text(key)?.and_then(|found| known.iter().find(|(name, _)| name.eq_ignore_ascii_case(found)));
    let packing = found.map_or(GptqPacking::LessOne, |&(_, packing)| packing);
    Ok(Method::Gptq { packing, ordered: settings.flag("desc_act")?.unwrap_or(false) })
}

fn awq(settings: &Config) -> Result<Method, ConvertError> {
    let key = if settings.value("version").is_some() { "version" } else { "format" };
    one_of(settings, key, &["gemm"], "gemm; take the model's folder with this version")?;
    Ok(Method::Awq)
}

/// AutoRound writes as other programs do, which `packing_format` names.
fn auto_round(settings: &Config) -> Result<Method, ConvertError> {
    const KEY: &str = "packing_format";
    let format = settings.text(KEY)?.unwrap_or("auto_round:auto_gptq");
    let of = format.split_once(':').map_or("", |(_, of)| of);
    match of {
        "auto_gptq" => Ok(Method::Gptq { packing: GptqPacking::LessOne, ordered: false }),
        "" | "gptqmodel" if format.starts_with("auto_round") => {
            Ok(Method::Gptq { packing: GptqPacking::AsTheyAre, ordered: false })
        }
        "auto_awq" => Ok(Method::Awq),
        "llm_compressor" | "fp8_static" | "fp8" => Ok(Method::ByTensors),
        _ => {
            let expected = "auto_round:auto_gptq, auto_round:auto_awq or auto_round:llm_compressor; take the model's \
                            folder with one of them";
            Err(settings.wrong(KEY, &format.into(), expected))
        }
    }
}

/// Bits and groups that `bits` and `group_size` state for all modules; none if modules may differ.
fn widths(settings: &Config) -> Result<(Option<usize>, Option<Group>), ConvertError> {
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    if ["dynamic", "extra_config"].iter().any(|key| settings.value(key).is_some_and(|value| !is_empty(value))) {
        return Ok((None, None));
    }
    let key = if settings.value("bits").is_some() { "bits" } else { "w_bit" };
    let bits = settings.count(key)?.map(|bits| bits as usize);
    if let Some(bits) = bits.filter(|bits| !(1..=8).contains(bits)) {
        return Err(settings.wrong(key, &bits.into(), "1 to 8"));
    }
    let key = if settings.value("group_size").is_some() { "group_size" } else { "q_group_size" };
    let group = match settings.number(key)? {
        None => None,
        Some(-1.0) => Some(Group::Row),
        Some(size) if size >= 1.0 && size.fract() == 0.0 => Some(Group::Of(size as usize)),
        Some(size) => return Err(settings.wrong(key, &size.into(), "the columns of a group, or -1 for whole rows")),
    };
    Ok((bits, group))
}

/// Bits of modules in AutoRound's `extra_config`. Names can also be patterns, which no module has.
fn of_modules(settings: &Config) -> BTreeMap<String, usize> {
    let modules = settings.value("extra_config").and_then(Value::as_object).into_iter().flatten();
    modules
        .filter_map(|(module, of)| Some((module.clone(), usize::try_from(of.get("bits")?.as_u64()?).ok()?)))
        .collect()
}

fn compressed_tensors(settings: &Config) -> Result<(), ConvertError> {
    let expected =
        format!("one of {}; take a folder with one of them, or a GGUF file of the model", FORMATS.join(", "));
    one_of(settings, "format", FORMATS, &expected)?;
    for (key, found) in [("sparsity_config", "format"), ("transform_config", "config_groups")] {
        let within = settings.object(key)?;
        let used = within.as_ref().and_then(|within| within.value(found)).filter(|value| match value {
            Value::Object(groups) => !groups.is_empty(),
            Value::String(format) => format != "dense",
            _ => true,
        });
        if let (Some(within), Some(used)) = (&within, used) {
            return Err(within.wrong(found, used, format!("none: {key} is not read; take a model without it")));
        }
    }
    Ok(())
}

/// Bits of integer codes, and the block of FP8, in the groups of modules.
fn groups(settings: &Config) -> Result<(Vec<usize>, Option<[usize; 2]>), ConvertError> {
    const BLOCK: &str = "block_structure";
    let mut widths = Vec::new();
    let mut block = None;
    let Some(Value::Object(groups)) = settings.value("config_groups") else { return Ok((widths, block)) };
    let all = settings.object("config_groups")?;
    for name in groups.keys() {
        let group = all.as_ref().map(|all| all.object(name)).transpose()?.flatten();
        // Modules that only round activations have none.
        let Some(group) = group.map(|group| group.without_nulls(&["weights"])) else { continue };
        let Some(weights) = group.object("weights")? else { continue };
        let weights = weights.without_nulls(&[BLOCK, "num_bits", "type"]);
        if weights.text("type")?.is_none_or(|kind| kind == "int")
            && let Some(bits) = weights.count("num_bits")?
        {
            widths.push(bits as usize);
        }
        block = match weights.numbers(BLOCK)?.as_deref() {
            None => block,
            Some(&[rows, columns]) if rows >= 1.0 && columns >= 1.0 => Some([rows as usize, columns as usize]),
            Some(sizes) => {
                return Err(weights.wrong(BLOCK, &sizes.into(), "rows and columns of a block, as [128, 128]"));
            }
        };
    }
    Ok((widths, block))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(settings: Value) -> Result<Option<Packed>, String> {
        Packed::read(&Config::of(settings)).map_err(|error| error.to_string())
    }

    #[test]
    fn methods() {
        let method = |settings| read(settings).unwrap().unwrap().method;
        let gptq = |packing, ordered| Method::Gptq { packing, ordered };
        let less_one = gptq(GptqPacking::LessOne, false);
        assert_eq!(method(json!({"quant_method": "gptq", "desc_act": true})), gptq(GptqPacking::LessOne, true));
        assert_eq!(method(json!({"quant_method": "gptq", "bits": 4})), less_one);
        let named = |format| method(json!({"quant_method": "gptq", "checkpoint_format": format}));
        assert_eq!(named("gptq_v2"), gptq(GptqPacking::AsTheyAre, false));
        assert_eq!(named("gptq_p"), gptq(GptqPacking::Planes, false));
        assert_eq!(method(json!({"quant_method": "awq", "version": "GEMM"})), Method::Awq);
        let round = |format| method(json!({"quant_method": "intel/auto-round", "packing_format": format}));
        assert_eq!(round("auto_round:auto_gptq"), less_one);
        assert_eq!(round("auto_round:gptqmodel"), gptq(GptqPacking::AsTheyAre, false));
        assert_eq!(round("auto_round:auto_awq"), Method::Awq);
        assert_eq!(round("auto_round:llm_compressor"), Method::ByTensors);
        assert!(read(json!({"quant_method": "fp8"})).unwrap().is_none());
    }

    #[test]
    fn others_are_refused_with_what_to_take() {
        let refused = |settings, says: [&str; 2]| {
            let error = read(settings).err().unwrap();
            assert!(says.iter().all(|says| error.contains(says)), "{error}");
        };
        for method in ["bitsandbytes", "bitsandbytes_4bit", "hqq", "torchao"] {
            refused(json!({"quant_method": method}), [method, "take the unquantised model, quantised to Q4_K_M"]);
        }
        refused(json!({"quant_method": "exl3"}), ["exl3", "a GGUF file of the model"]);
        let adapter = json!({"name": "lora", "rank": 64, "path": "eora"});
        refused(json!({"quant_method": "gptq", "adapter": adapter}), ["adapter", "take a model without adapter"]);
        refused(json!({"quant_method": "gptq", "rotation": "hadamard"}), ["rotation", "hadamard"]);
        refused(
            json!({"quant_method": "auto-round", "spinquant_config": {"r1": true}}),
            ["spinquant_config", "not read"],
        );
        let none = json!({"quant_method": "gptq", "rotation": null, "adapter": null, "rotation_config": {}});
        assert!(read(none).unwrap().is_some());
        refused(json!({"quant_method": "quark"}), ["quark", "FP8, compressed-tensors or NVFP4"]);
        // What transformers 5.24 writes for bitsandbytes, TorchAO 0.18 and HQQ 0.2.8.
        let bitsandbytes = json!({
            "_load_in_8bit": false, "_load_in_4bit": true, "llm_int8_threshold": 6.0, "llm_int8_skip_modules": null,
            "llm_int8_enable_fp32_cpu_offload": false, "llm_int8_has_fp16_weight": false, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": true, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
            "load_in_4bit": true, "load_in_8bit": false,
        });
        refused(bitsandbytes, ["bitsandbytes", "take the unquantised model"]);
        let torchao = json!({
            "quant_method": "torchao", "modules_to_not_convert": null, "include_input_output_embeddings": false,
            "untie_embedding_weights": false, "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_version": 2,
                "_data": {"group_size": 128, "int4_packing_format": {"_type": "Int4PackingFormat", "_data": "PLAIN"}}}},
        });
        refused(torchao, ["torchao", "take the unquantised model"]);
        let hqq = json!({
            "quant_method": "hqq", "skip_modules": ["lm_head"], "quant_config": {"scale_quant_params": null,
                "weight_quant_params": {"nbits": 4, "channel_wise": true, "group_size": 64, "optimize": true,
                    "round_zero": true, "axis": 1, "view_as_float": false},
                "zero_quant_params": null, "offload_meta": false},
        });
        refused(hqq, ["hqq", "take the unquantised model"]);
        refused(json!({"quant_method": "quanto", "weights": "int8", "activations": null}), ["quanto", "unquantised"]);
        // What GPTQModel 7.7 writes in the format of ExLlamaV3, and AMD's documentation of Quark shows.
        let exl3 = json!({
            "method": "exl3", "quant_method": "exl3", "format": "exl3", "checkpoint_format": "exl3", "bits": 3.0,
            "codebook": "mcg", "out_scales": "auto", "group_size": -1, "desc_act": false,
        });
        refused(exl3, ["exl3", "take a GGUF file of the model"]);
        let quark = json!({
            "quant_method": "quark", "export": {"pack_method": "reorder", "weight_format": "real_quantized"},
            "global_quant_config": {
                "weight": [{"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": false},
                    {"dtype": "int4", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": false}],
                "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": true},
            },
        });
        refused(quark, ["quark", "the model's folder in FP8"]);
        refused(json!({"quant_method": "new"}), ["new", "take the unquantised model"]);
        refused(json!({"quant_method": "awq", "version": "gemv"}), ["`version` is \"gemv\"", "gemm"]);
        refused(json!({"quant_method": "gptq", "checkpoint_format": "marlin"}), ["marlin", "gptq_v2"]);
        refused(json!({"quant_method": "gptq", "bits": 16}), ["`bits` is 16", "1 to 8"]);
        refused(json!({"quant_method": "gptq", "group_size": 0}), ["`group_size` is 0", "-1"]);
        refused(json!({"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"}), ["NVFP4_AWQ", "FP8 or NVFP4"]);
        let compressed = |key: &str, value| {
            let mut settings = json!({"quant_method": "compressed-tensors"});
            settings[key] = value;
            settings
        };
        refused(compressed("format", json!("marlin-24")), ["marlin-24", "pack-quantized"]);
        refused(compressed("sparsity_config", json!({"format": "sparse-24-bitmask"})), ["sparse", "sparsity_config"]);
        let rotated = json!({"config_groups": {"R1": {}}});
        refused(compressed("transform_config", rotated), ["transform_config", "a model without it"]);
    }
}
