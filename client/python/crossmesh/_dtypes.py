"""Element types by the names that numpy, torch and JAX have for them; ours are those of safetensors files."""

from crossmesh.errors import InvalidArgumentError

NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3", "int16": "I16",
    "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32",
    "int64": "I64", "uint64": "U64", "float64": "F64",
}  # fmt: skip


def name_of(what: str, dtype: object) -> str:
    """Of a framework's dtype. Raises InvalidArgumentError, naming what has it, for one that Crossmesh does not move."""
    name = str(dtype).removeprefix("torch.")
    if name not in NAMES:
        expected = f"a dtype among {', '.join(NAMES)}"
        raise InvalidArgumentError(f"{what}: expected {expected}, found {name}", what, expected, name)
    return NAMES[name]
