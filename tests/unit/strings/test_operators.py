"""Operators on strings against Python's own str, NumPy and the words of ONNX."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np
import pytest

from opforge.errors import OpforgeError, UnsupportedError
from tests.unit.kernels.one_node import check, run

ML = {"domain": "ai.onnx.ml"}


def strings(*values: str) -> np.ndarray[Any, Any]:
    return np.array(values, object)


def test_equal_and_concat_broadcast() -> None:
    x, y = strings("a", "b", "", "€"), strings("a", "", "x")[:, None]
    check("Equal", [x, y], [np.bool_], want=[x == y])
    check("Equal", [x, y], [np.bool_], want=[x == y], constants=[1])
    check("StringConcat", [x, y], [object], want=[x + y])
    check("StringConcat", [x, y], [object], want=[x + y], constants=[0])


def written(value: Any) -> str:
    """As Python writes a float, with the fewest digits that give back the number of this dtype."""
    size = abs(value)
    if size == 0 or not np.isfinite(value) or type(value)(1e-4) <= size < type(value)(1e16):
        return np.format_float_positional(value, unique=True, trim="0")
    return np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_as_text(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**63, 400, np.uint64)
    random = (
        bits.view(np.float64) if dtype is np.float64 else (bits >> np.uint64(31)).astype(np.uint32).view(np.float32)
    )
    special = [0.0, -0.0, 1, -1, 0.1, 1e-4, 9.999e-5, 1e15, 1e16, 123456789, 2.5e-45, 1e300, np.inf, -np.inf, np.nan]
    with np.errstate(over="ignore"):
        x = np.concatenate([np.array(special, dtype), random.astype(dtype), rng.standard_normal(100).astype(dtype)])
    want = strings(*map(written, x))
    assert dtype is np.float32 or want.tolist() == [str(float(v)) for v in x]
    check("Cast", [x], [object], want=[want], to=8)
    check("Cast", [want], [dtype], want=[x], to=1 if dtype is np.float32 else 11)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_as_text(dtype: Any) -> None:
    from onnx.helper import np_dtype_to_tensor_dtype

    limits = np.iinfo(dtype)
    x = np.array([0, 1, 7, limits.min, limits.max, limits.max - 1], dtype)
    want = strings(*map(str, x.tolist()))
    check("Cast", [x], [object], want=[want], to=8)
    to = np_dtype_to_tensor_dtype(np.dtype(dtype))
    check("Cast", [want], [dtype], want=[x], to=to)
    check("Cast", [strings(" 7\t", "+7", "7.9", "7e0", "0070e-1")], [dtype], want=[np.full(5, 7, dtype)], to=to)
    for text in (str(limits.max + 1), str(limits.min - 1), "1e30", "nan", "", "7x", "0x7"):
        with pytest.raises(OpforgeError, match="element 1 is no number of the wanted dtype"):
            run("Cast", [strings("1", text)], [dtype], to=to)


def test_other_casts() -> None:
    check("Cast", [np.array([True, False])], [object], want=[strings("True", "False")], to=8)
    check("Cast", [strings("1", "0", "2.5")], [np.bool_], want=[np.array([True, False, True])], to=9)
    check("Cast", [strings("a", "€")], [object], want=[strings("a", "€")], to=8)
    check(
        "Cast",
        [strings("INF", "-Infinity", "NaN", "1E3")],
        [np.float32],
        want=[np.float32([np.inf, -np.inf, np.nan, 1e3])],
        to=1,
    )
    check("Cast", [strings("0.1", "65504")], [np.float16], want=[np.float16([0.1, 65504])], to=10)
    check("CastLike", [strings("0.5"), np.zeros(1, np.float32)], [np.float32], want=[np.float32([0.5])])
    check("CastLike", [np.array([3]), strings("")], [object], want=[strings("3")])
    with pytest.raises(OpforgeError, match="StringCast"):
        run("Cast", [np.float16([1])], [object], to=8)


SPLIT = ["a b  c", "", "  ", " lead and trail ", "one", "a,b,,c,", "ünï\u2003cödé\u00a0x\x1cy", "a\0b c", ",", ",,"]


@pytest.mark.parametrize("delimiter", [None, "", ",", ",,", "b", "ö"])
@pytest.mark.parametrize("most", [None, 0, 1, 2])
def test_split(delimiter: str | None, most: int | None) -> None:
    x = strings(*SPLIT).reshape(2, 5)
    pieces = [t.split(delimiter or None, -1 if most is None else most) for t in SPLIT]
    width = max(map(len, pieces))
    want = np.array([p + [""] * (width - len(p)) for p in pieces], object).reshape(2, 5, width)
    counts = np.array([len(p) for p in pieces]).reshape(2, 5)
    options: dict[str, Any] = {} if delimiter is None else {"delimiter": delimiter}
    options |= {} if most is None else {"maxsplit": most}
    check("StringSplit", [x], [object, np.int64], want=[want, counts], **options)


def test_split_of_nothing() -> None:
    check(
        "StringSplit",
        [strings().reshape(0, 3)],
        [object, np.int64],
        want=[strings().reshape(0, 3, 0), np.zeros((0, 3), np.int64)],
    )


def test_case_is_that_of_unicode() -> None:
    old = unicodedata.ucd_3_2_0  # characters that every version of Python knows alike
    known = [chr(c) for c in range(0x80, 0x30000) if old.category(chr(c)) not in ("Cn", "Cs", "Co")]
    for action, change in (("LOWER", str.lower), ("UPPER", str.upper)):
        kept = [c for c in [*map(chr, range(1, 128)), *known] if len(change(c)) == 1]
        assert len(kept) > 90000
        check(
            "StringNormalizer",
            [strings(*kept)],
            [object],
            want=[strings(*map(change, kept))],
            case_change_action=action,
        )


def test_normalizer() -> None:
    x = strings("Monday", "tuesday", "Élan", "élan", "", "MONDAY")
    cases = [
        ({}, x),
        ({"case_change_action": "UPPER"}, strings("MONDAY", "TUESDAY", "ÉLAN", "ÉLAN", "", "MONDAY")),
        ({"stopwords": ["monday", "éLAN"]}, strings("tuesday", "")),
        ({"stopwords": ["monday", "Élan"], "is_case_sensitive": 1}, strings("Monday", "tuesday", "élan", "", "MONDAY")),
        (
            {"stopwords": ["Monday"], "is_case_sensitive": 1, "case_change_action": "LOWER"},
            strings("tuesday", "élan", "élan", "", "monday"),
        ),
    ]
    for options, want in cases:
        check("StringNormalizer", [x], [object], want=[want], **options)
        check("StringNormalizer", [x[None]], [object], want=[want[None]], **options)
    check("StringNormalizer", [strings("a", "A")], [object], want=[strings("")], stopwords=["a"])
    check("StringNormalizer", [strings()], [object], want=[strings("")])
    with pytest.raises(OpforgeError, match=r"\[C\] or \[1,C\]"):
        run("StringNormalizer", [strings("a", "b")[:, None]], [object])


PATTERNS = [
    "", "a", "abc", "a|b", "a|b|", "(ab)*", "a*", "a+b?", "a{2}", "a{2,}", "a{0,2}b", "(?:a|b){2,3}", "[abc]",
    "[^abc]", "[a-c]+", r"\d+", r"\D*", r"\w+\s\w+", r"\W", r"\S+", ".*", ".", "(?s).*", "^a$", "a^b", "a$b",
    "(^a|b)$", r"\Aa\z", r"\bab\b", r"a\b.*", r"\Ba", r"a\B.", "(?i)aBc", "(?i:a)B", "(?m)a\n^b$", "(?im)^A\nB$",
    r"\x41\x{1F642}", r"\n", r"[\n\]a-]", "[]a]", "[^]a]", "[a-]", "[[:alpha:]]+", "[[:^digit:]]",
    "[[:punct:][:space:]]+", r"\Qa.b\E", r"\Qa*\E+", "(?P<x>a)b", "(?<x>a)b", "a{,2}", "a{x", "((a*)*)*", "(a|aa)+",
    "(|a)+b", "[é-ü]+", "é", "(?i)É", r"\.", r"\\", r"a\-b", r"\x20", r"\0", r"(a?){20}a{20}", "(?i)[k-m]",
    "(?-i)a", "(?i)[^a]", "a.c", r"[\w.-]+@[\w-]+\.\w+", "(?U)a+",
]  # fmt: skip
SAMPLES = [
    "", "a", "b", "c", "ab", "abc", "ABC", "aB", "aa", "aaa", "aab", "aabb", "abab", "a b", "12", "x12", "a\nb",
    "\n", "a\0", "\0", "€", "é", "É", "éü", "A🙂", "ab cd", "a.b", "a*", "a**", "aXb", "a-b", "-", "]", "[", "\\",
    ".", "!? ", "a" * 20, "a" * 40, "user@ex-ample.org", "a{,2}", "a{x", "K", "m", "abcab", " ",
]  # fmt: skip


def in_python(pattern: str) -> re.Pattern[str]:
    """The same in Python's words, where RE2's differ: \\z, \\x{..}, [[:name:]], \\Q..\\E, ASCII classes, $."""
    names = {"alpha": "A-Za-z", "punct": r"!-/:-@\[-`{-~", "space": r"\t-\r "}
    text = pattern.replace(r"\z", r"\Z").replace(r"\x{1F642}", "🙂").replace("(?<x>", "(?P<x>").replace("(?U)", "")
    text = re.sub(r"\[:(\w+):\]", lambda m: names[m.group(1)], text).replace("[[:^digit:]]", "[^0-9]")
    text = re.sub(r"\\Q(.*?)\\E", lambda m: "".join(map(re.escape, m.group(1))), text)
    text = text.replace("(?-i)", "").replace("a{,2}", r"a\{,2\}").replace("a{x", r"a\{x").replace("[[:", "[[:")
    if "(?m" not in text and "(?im" not in text and not text.startswith("[\\n"):
        text = re.sub(r"(?<!\\)\$", r"\\Z", text)
    return re.compile(text, re.ASCII if not re.search("[é-üÉ]", text) else 0)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_full_match(pattern: str) -> None:
    want = np.array([in_python(pattern).fullmatch(s) is not None for s in SAMPLES])
    check("RegexFullMatch", [strings(*SAMPLES)], [np.bool_], want=[want], pattern=pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"(a)\1", "RE2 has no references to groups"),
        ("(?=a)", "no such group"),
        ("(?<!a)b", "looking behind"),
        ("(", "a '\\(' has no '\\)'"),
        (")", "a '\\)' has no '\\('"),
        ("[a", "a '\\[' has no '\\]'"),
        ("*a", "nothing that a repetition could repeat"),
        ("a**", "a repetition follows another one"),
        ("a{1001}", "none that RE2 knows"),
        ("a{3,2}", "none that RE2 knows"),
        ("[b-a]", "goes backwards"),
        (r"\pL", "means nothing here"),
        (r"\x{110000}", "no code point"),
        ("[[:none:]]", "no such name"),
        ("\\", "ends with a backslash"),
        ("(((a{100}){100}){100}){100}", "repeats too much"),
        ("((((){1000}){1000}){1000}){1000}", "repeats too much"),
        ("(" * 300 + ")" * 300, "too deep"),
        ("a" * 70000, "too long"),
    ],
)
def test_patterns_that_cannot_be_used(pattern: str, words: str) -> None:
    with pytest.raises(OpforgeError, match=f"(?s)the pattern .* cannot be used: .*{words}"):
        run("RegexFullMatch", [strings("a")], [np.bool_], pattern=pattern)


def test_patterns_that_make_backtracking_slow() -> None:
    for pattern in ("(a*)*b", "(a|a)*b", "(a|aa)+$b", "(.*)*x", "(a?){500}a{500}"):
        check("RegexFullMatch", [strings("a" * 2000)], [np.bool_], want=[np.array([False])], pattern=pattern)


def test_label_encoders() -> None:
    x = strings("b", "a", "?", "", "b")
    keys = {"keys_strings": ["a", "b", "", "a"]}
    cases: list[tuple[dict[str, Any], Any, Any]] = [
        ({"values_int64s": [1, 2, 3, 4], "default_int64": -7}, np.int64, np.array([2, 4, -7, 3, 2])),
        ({"values_int64s": [1, 2, 3, 4]}, np.int64, np.array([2, 4, -1, 3, 2])),
        ({"values_floats": [1.0, 2.0, 3.0, 4.5]}, np.float32, np.float32([2, 4.5, -0.0, 3, 2])),
        ({"values_strings": ["x", "y", "z", "€"]}, object, strings("y", "€", "_Unused", "z", "y")),
        ({"values_strings": ["x", "y", "z", "€"], "default_string": ""}, object, strings("y", "€", "", "z", "y")),
    ]
    for options, dtype, want in cases:
        check("LabelEncoder", [x], [dtype], want=[want], **keys, **options, **ML)
        check("LabelEncoder", [x[None]], [dtype], want=[want[None]], **keys, **options, **ML)
    values = {"values_strings": ["x", "y"]}
    check(
        "LabelEncoder",
        [np.array([5, 6, 7])],
        [object],
        want=[strings("x", "y", "_Unused")],
        keys_int64s=[5, 6],
        **values,
        **ML,
    )
    floats = np.float32([-0.0, np.nan, 1])
    keyed = {"keys_floats": [0.0, float("nan")]}
    check("LabelEncoder", [floats], [object], want=[strings("x", "y", "_Unused")], **keyed, **values, **ML)


def test_a_large_vocabulary() -> None:
    words = [f"word{k * 7919 % 20011}" for k in range(20011)]
    x = strings(*(f"word{k}" for k in (0, 5, 20010, 20011)), "wor")
    want = np.array([words.index(t) if t in words else -1 for t in x])
    check("LabelEncoder", [x], [np.int64], want=[want], keys_strings=words, values_int64s=list(range(20011)), **ML)


def test_categories() -> None:
    cats = {"cats_strings": ["a", "b"], "cats_int64s": [10, 20]}
    check("CategoryMapper", [strings("b", "?")], [np.int64], want=[np.array([20, -1])], **cats, **ML)
    check("CategoryMapper", [np.array([10, 5])], [object], want=[strings("a", "_Unused")], **cats, **ML)
    x = strings("b", "?", "a")
    want = np.float32([[0, 1], [0, 0], [1, 0]])
    check("OneHotEncoder", [x], [np.float32], want=[want], cats_strings=["a", "b"], **ML)
    check("OneHotEncoder", [x[None]], [np.float32], want=[want[None]], cats_strings=["a", "b"], zeros=1, **ML)
    with pytest.raises(OpforgeError, match="index 2 is out of range"):
        run("OneHotEncoder", [x], [np.float32], cats_strings=["a", "b"], zeros=0, **ML)
    for dtype in (np.int64, np.int32, np.float32, np.float64):
        check(
            "OneHotEncoder",
            [np.array([7, 8, 9], dtype)],
            [np.float32],
            want=[np.float32([[0], [1], [0]])],
            cats_int64s=[8],
            **ML,
        )


def test_feature_vectorizer() -> None:
    x, y, z = np.float32([[1, 2], [3, 4]]), np.array([[5], [6]]), np.array([7.5, 8.5])
    want = np.float32([[1, 2, 5, 0, 7.5], [3, 4, 6, 0, 8.5]])
    check("FeatureVectorizer", [x, y, z], [np.float32], want=[want], inputdimensions=[2, 2, 1], **ML)
    check("FeatureVectorizer", [x], [np.float32], want=[x[:, :1]], inputdimensions=[1], **ML)


def test_ngrams_of_strings() -> None:
    x = np.array([["a", "b", "a", "b"], ["b", "c", "?", "a"]], object)
    options = {
        "mode": "TF",
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 0,
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 2, 1, 3, 4],
        "pool_strings": ["a", "b", "c", "a", "b", "b", "c"],
    }
    want = np.float32([[2, 0, 2, 2, 0], [1, 1, 1, 0, 1]])
    check("TfIdfVectorizer", [x], [np.float32], want=[want], **options)


def test_labels_of_classifiers_may_be_texts() -> None:
    x = np.float32([[1, 0], [0, 1], [0.4, 0.6]])
    weights = {
        "coefficients": [2.0, 0, 0, 2, 1, 1],
        "intercepts": [0.0, 0, 0.5],
        "classlabels_strings": ["no", "yes", "€"],
    }
    scores = x @ np.float32([[2, 0], [0, 2], [1, 1]]).T + np.float32([0, 0, 0.5])
    check("LinearClassifier", [x], [object, np.float32], want=[strings("no", "yes", "€"), scores], **weights, **ML)
    tree = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "class_treeids": [0, 0, 0],
        "class_nodeids": [1, 2, 2],
        "class_ids": [0, 1, 0],
        "class_weights": [1.0, 0.75, 0.25],
        "classlabels_strings": ["low", "high"],
    }
    want = [strings("high", "low", "low"), np.float32([[0.25, 0.75], [1, 0], [1, 0]])]
    check("TreeEnsembleClassifier", [x], [object, np.float32], want=want, **tree, **ML)


def test_maps_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="a program holds no maps"):
        run("ZipMap", [np.float32([[1, 2]])], [np.float32], classlabels_strings=["a", "b"], **ML)
