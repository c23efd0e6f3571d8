"""Writes vectors.json and tiny-*/vectors.json: sentence vectors of an encoder of its own in float64; and, the
same with an adapter, whose changes it adds to the weights, adapted.json and tiny-f16/adapted.json.

    python3 make/vectors.py MODEL_DIR    (in testdata; needs numpy)

MODEL_DIR holds the fp16 model.safetensors and the config.json of all-MiniLM-L6-v2. The token ids
are those of the reference tokenizer, so run tokens.mjs first. Fails when the similarities that the
model card publishes are missed.
"""
import json
import math
import struct
import sys

import numpy as np

erf = np.vectorize(math.erf, otypes=[np.float64])


def read_json(path):
    with open(path) as f:
        return json.load(f)


def load(directory):
    """The tensors of a model as float64, and its config."""
    tensors, _ = read_safetensors(directory + "/model.safetensors")
    return tensors, read_json(directory + "/config.json")


def read_safetensors(path):
    """The tensors of a file as float64, and its metadata."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    tensors = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*info["data_offsets"])]
        if info["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2", "I64": "<i8"}[info["dtype"]])
        tensors[name] = values.astype(np.float64).reshape(info["shape"])
    return tensors, header.get("__metadata__", {})


def adapt(tensors, path):
    """Adds the changes of an adapter to the weights of a model."""
    changes, metadata = read_safetensors(path)
    for name in changes:
        if name.endswith(".down"):
            name = name[: -len(".down")]
            tensors[name + ".weight"] += float(metadata["strength"]) * changes[name + ".up"] @ changes[name + ".down"]


def encode(tensors, config, ids, cls):
    """The L2-normalised vector of one text."""
    epsilon, heads = config["layer_norm_eps"], config["num_attention_heads"]

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
        return x * tensors[name + ".weight"] + tensors[name + ".bias"]

    def dense(x, name):
        return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]

    def split(x):
        return x.reshape(len(ids), heads, -1).transpose(1, 0, 2)

    x = tensors["embeddings.word_embeddings.weight"][ids] + tensors["embeddings.token_type_embeddings.weight"][0]
    x = norm(x + tensors["embeddings.position_embeddings.weight"][: len(ids)], "embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}."
        q, k, v = (split(dense(x, layer + "attention.self." + part)) for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(len(ids), -1)
        x = norm(x + dense(seen, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        inner = dense(x, layer + "intermediate.dense")
        inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
        x = norm(x + dense(inner, layer + "output.dense"), layer + "output.LayerNorm")
    x = x[0] if cls else x.mean(0)
    return x / np.sqrt((x * x).sum())


def write(path, directory, tokens, limit, cls=False, adapter=None):
    tensors, config = load(directory)
    if adapter:
        adapt(tensors, adapter)
    vectors = []
    with open(path, "w") as f:
        for i, token in enumerate(tokens):
            ids = token["ids"]
            if len(ids) > limit:  # cut the text, keep the closing [SEP]
                ids = ids[: limit - 1] + ids[-1:]
            vectors.append(encode(tensors, config, ids, cls))
            row = ",".join(f"{v:.7f}" for v in vectors[-1])
            f.write(("[\n" if i == 0 else ",\n") + f'{{"text":{json.dumps(token["text"])},"tokens":{len(ids)},"vector":[{row}]}}')
        f.write("\n]\n")
    return vectors


tokens = [t for t in read_json("tokens.json") if t["group"] == "vectors"]
v = write("vectors.json", sys.argv[1], tokens, limit=256)
for a, b, published in (0, 1, 0.6660), (0, 2, 0.1046), (1, 2, 0.1411):
    print(f"similarity {a} {b}: {v[a] @ v[b]:.6f}, published {published}")
    if abs(v[a] @ v[b] - published) > 1e-3:
        sys.exit("the model card's similarity is missed")

tiny = read_json("tiny.json")
write("tiny-f32/vectors.json", "tiny-f32", tiny, limit=16, cls=True)
write("tiny-f16/vectors.json", "tiny-f16", tiny, limit=20)
write("tiny-bf16/vectors.json", "tiny-bf16", tiny, limit=20)

write("adapted.json", sys.argv[1], tokens[:8], limit=256, adapter="../adapter.safetensors")
write("tiny-f16/adapted.json", "tiny-f16", tiny, limit=20, adapter="tiny-f16/adapter.safetensors")
