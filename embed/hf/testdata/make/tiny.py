"""Writes the tiny models: random BERT encoders with sizes that are no multiple of a SIMD width.

    python3 make/tiny.py    (in testdata; needs numpy)

tiny-f32  F32, CLS pooling, tokenizer.json whose truncation and padding must be ignored,
          modules.json, prompts, at most 16 tokens (sentence_bert_config.json), ids in an I64 tensor
tiny-f16  F16, mean pooling by 1_Pooling/config.json, at most 20 tokens (its position embeddings)
          adapter.safetensors changes some of its maps, with different ranks, by half
tiny-bf16 BF16, vocab.txt instead of tokenizer.json, nothing said about pooling: mean; a large epsilon
Run it first; tokens.mjs and vectors.py follow. Seeded: a second run writes the same bytes.
"""
import json
import os
import struct

import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["tool", "search", "create", "the", "##s", "##ing", "中", ",", ":", "é", "[", "]", "C", "ß"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS + list(LETTERS[:22]) + ["##" + c for c in LETTERS[:22]]

TOKENIZER = {
    "version": "1.0",
    "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
    "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
    "added_tokens": [
        {"id": i, "special": True, "content": VOCAB[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        for i in range(5)
    ],
    "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}},
    },
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {
        "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {word: i for i, word in enumerate(VOCAB)},
    },
}


def encode(array, dtype):
    """The bytes of an array in a safetensors type."""
    if dtype == "BF16":  # the upper half of an F32, rounded to even
        bits = array.astype("<f4").view("<u4").astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
    return array.astype({"F32": "<f4", "F16": "<f2", "I64": "<i8"}[dtype]).tobytes()


def write_safetensors(path, tensors, **metadata):
    header, blobs, offset = {"__metadata__": {"format": "pt", **metadata}}, [], 0
    for name, (array, dtype) in sorted(tensors.items()):
        blob = encode(array, dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


def model(directory, dtype, seed, hidden, heads, inner, epsilon):
    rng = np.random.default_rng(seed)
    positions, tensors = 20, {}

    def add(name, *shape, scale=0.3, shift=0.0):
        tensors[name] = (rng.normal(shift, scale, shape), dtype)

    def norm(name):
        add(name + ".weight", hidden, scale=0.2, shift=1.0)
        add(name + ".bias", hidden, scale=0.2)

    def dense(name, n_in, n_out):
        add(name + ".weight", n_out, n_in)
        add(name + ".bias", n_out)

    add("embeddings.word_embeddings.weight", len(VOCAB), hidden, scale=1.0)
    add("embeddings.position_embeddings.weight", positions, hidden, scale=1.0)
    add("embeddings.token_type_embeddings.weight", 2, hidden, scale=1.0)
    norm("embeddings.LayerNorm")
    for i in range(2):
        layer = f"encoder.layer.{i}."
        for part in "query", "key", "value":
            dense(layer + "attention.self." + part, hidden, hidden)
        dense(layer + "attention.output.dense", hidden, hidden)
        norm(layer + "attention.output.LayerNorm")
        dense(layer + "intermediate.dense", hidden, inner)
        dense(layer + "output.dense", inner, hidden)
        norm(layer + "output.LayerNorm")
    if dtype == "F32":
        tensors["embeddings.position_ids"] = (np.arange(positions).reshape(1, -1), "I64")
    os.makedirs(directory, exist_ok=True)
    write_safetensors(directory + "/model.safetensors", tensors)
    write_json(directory + "/config.json", {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": hidden, "num_attention_heads": heads,
        "num_hidden_layers": 2, "intermediate_size": inner, "layer_norm_eps": epsilon, "max_position_embeddings": positions,
        "type_vocab_size": 2, "vocab_size": len(VOCAB), "position_embedding_type": "absolute", "pad_token_id": 0,
    })
    return tensors


def adapter(path, tensors, seed, **ranks):
    """An adapter of a model with these tensors; ranks are by layer and map."""
    rng = np.random.default_rng(seed)
    changes = {"base": (tensors["encoder.layer.1.attention.self.query.weight"][0][0], "F32")}
    for name, rank in ranks.items():
        n_out, n_in = tensors[name + ".weight"][0].shape
        changes[name + ".down"] = (rng.normal(0, 0.3, (rank, n_in)), "F32")
        changes[name + ".up"] = (rng.normal(0, 0.3, (n_out, rank)), "F32")
    write_safetensors(path, changes, strength="0.5")


def pooling(directory, hidden, cls):
    write_json(directory + "/1_Pooling/config.json", {
        "word_embedding_dimension": hidden, "pooling_mode_cls_token": cls, "pooling_mode_mean_tokens": not cls,
        "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
    })
    kind = "sentence_transformers.models."
    write_json(directory + "/modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": kind + "Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": kind + "Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": kind + "Normalize"},
    ])


model("tiny-f32", "F32", 1, hidden=24, heads=3, inner=40, epsilon=1e-12)
pooling("tiny-f32", 24, cls=True)
write_json("tiny-f32/tokenizer.json", TOKENIZER)
write_json("tiny-f32/sentence_bert_config.json", {"max_seq_length": 16, "do_lower_case": False})
write_json("tiny-f32/config_sentence_transformers.json", {"prompts": {"query": "search: ", "document": ""}, "default_prompt_name": None})

tensors = model("tiny-f16", "F16", 2, hidden=21, heads=3, inner=37, epsilon=1e-5)
adapter("tiny-f16/adapter.safetensors", tensors, 4, **{
    "encoder.layer.0.attention.self.query": 1, "encoder.layer.0.attention.self.value": 5, "encoder.layer.0.intermediate.dense": 2,
    "encoder.layer.1.attention.self.key": 3, "encoder.layer.1.attention.output.dense": 2, "encoder.layer.1.output.dense": 40,
})
pooling("tiny-f16", 21, cls=False)
write_json("tiny-f16/tokenizer.json", TOKENIZER)

model("tiny-bf16", "BF16", 3, hidden=20, heads=2, inner=33, epsilon=0.1)
with open("tiny-bf16/vocab.txt", "w") as f:
    f.write("\n".join(VOCAB) + "\n")
