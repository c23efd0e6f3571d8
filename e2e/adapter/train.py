"""Trains an adapter of all-MiniLM-L6-v2 for queries: a low-rank change of its top layers.

    python3 e2e/adapter/train.py --out my.safetensors mine=DIR other=DIR

Each DIR is a set as `toolfinch eval --set` reads it: tools.jsonl and queries.jsonl; without queries.jsonl,
or with answers to tools/list (*.json), only keyword queries are made from it. FAMILY/NAME=DIR puts a set
into a family of sets; each family is drawn equally often, and --hold FAMILY trains on all others. Needs Go,
the model (toolfinch model pull), torch and numpy with a fast BLAS (Debian: python3-torch, libopenblas0-openmp).
The file is for `hf_adapter: my.safetensors`. docs/research/retrieval.md says what it gives.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

MAPS = ("attention.self.query", "attention.self.key", "attention.self.value",
        "attention.output.dense", "intermediate.dense", "output.dense")  # fmt: skip
TEMPERATURE = 0.05
TWIN = 0.93  # tools this similar to a relevant one are not taken for wrong
LONGEST = 48  # tokens of a query


def read_safetensors(path):
    """The tensors of a file as float32."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header, data, tensors = json.loads(raw[8 : 8 + size]), raw[8 + size :], {}
    for name, info in header.items():
        if name != "__metadata__" and info["dtype"] in ("F16", "F32"):
            values = np.frombuffer(data[slice(*info["data_offsets"])], {"F16": "<f2", "F32": "<f4"}[info["dtype"]])
            tensors[name.removeprefix("bert.")] = torch.from_numpy(values.astype(np.float32).reshape(info["shape"]))
    return tensors


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().numpy().astype("<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Encoder:
    """BERT as embed/hf runs it; adapter is the two factors of each changed map by its name."""

    def __init__(self, directory):
        self.config = json.loads((directory / "config.json").read_text())
        self.tensors = read_safetensors(directory / "model.safetensors")

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.tensors[name + ".weight"], self.tensors[name + ".bias"], self.config["layer_norm_eps"])

    def dense(self, x, name, adapter):
        y = F.linear(x, self.tensors[name + ".weight"], self.tensors[name + ".bias"])
        if name in adapter:
            down, up = adapter[name]
            y = y + F.linear(F.linear(x, down), up)
        return y

    def embed(self, ids):
        x = self.tensors["embeddings.word_embeddings.weight"][ids] + self.tensors["embeddings.position_embeddings.weight"][: ids.shape[1]]
        return self.norm(x + self.tensors["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")

    def layer(self, i, x, mask, adapter):
        texts, tokens, hidden = x.shape
        at, heads = f"encoder.layer.{i}.", self.config["num_attention_heads"]
        q, k, v = (self.dense(x, at + part, adapter).view(texts, tokens, heads, -1).transpose(1, 2) for part in MAPS[:3])
        scores = q @ k.transpose(2, 3) / math.sqrt(hidden / heads) + (1 - mask)[:, None, None, :] * -1e4
        seen = (scores.softmax(-1) @ v).transpose(1, 2).reshape(texts, tokens, hidden)
        x = self.norm(x + self.dense(seen, at + MAPS[3], adapter), at + "attention.output.LayerNorm")
        inner = F.gelu(self.dense(x, at + MAPS[4], adapter))
        return self.norm(x + self.dense(inner, at + MAPS[5], adapter), at + "output.LayerNorm")


def mask_of(sequences):
    mask = torch.zeros(len(sequences), max(map(len, sequences)))
    for row, sequence in enumerate(sequences):
        mask[row, : len(sequence)] = 1
    return mask


class Set:
    """A catalogue: vectors of its tools, examples (tokens and relevant tools) of people and made of keywords."""

    def __init__(self, name, family, data):
        self.name, self.family = name, family
        self.tools = F.normalize(torch.from_numpy(np.fromfile(data / f"{name}.tools", "<f4").reshape(-1, 384)), dim=-1)
        self.queries = [json.loads(line) for line in open(data / f"{name}.queries")]
        self.keywords = [json.loads(line) for line in open(data / f"{name}.keywords")]

    def drop_twins_of(self, others):
        """Leaves out keyword queries for tools that others have too."""
        for other in others:
            known = torch.cat([(part @ other.tools.T).amax(1) for part in self.tools.split(1000)]) > TWIN
            self.keywords = [e for e in self.keywords if not any(known[t] for t in e["relevant"])]


class Trainer:
    def __init__(self, encoder, layers, rank, seed):
        torch.manual_seed(seed)
        self.random = np.random.default_rng(seed)
        self.encoder, self.first, self.adapter = encoder, encoder.config["num_hidden_layers"] - layers, {}
        for i in range(self.first, encoder.config["num_hidden_layers"]):
            for part in MAPS:
                name = f"encoder.layer.{i}.{part}"
                out, width = encoder.tensors[name + ".weight"].shape
                self.adapter[name] = ((torch.randn(rank, width) / math.sqrt(width)).requires_grad_(), torch.zeros(out, rank, requires_grad=True))
        self.parameters = [tensor for pair in self.adapter.values() for tensor in pair]

    def lower(self, examples):
        """What the unchanged layers make of texts, computed once."""
        new = [e for e in examples if "hidden" not in e]
        if new:
            for e in new:
                e["tokens"] = e["tokens"] if len(e["tokens"]) <= LONGEST else e["tokens"][: LONGEST - 1] + e["tokens"][-1:]
            ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(e["tokens"]) for e in new], batch_first=True)
            mask = mask_of([e["tokens"] for e in new])
            with torch.no_grad():
                x = self.encoder.embed(ids)
                for i in range(self.first):
                    x = self.encoder.layer(i, x, mask, {})
            for e, row in zip(new, x):
                e["hidden"] = row[: len(e["tokens"])].clone()
        return [e["hidden"] for e in examples]

    def vectors(self, examples):
        lower = self.lower(examples)
        mask, x = mask_of(lower), torch.nn.utils.rnn.pad_sequence(lower, batch_first=True)
        for i in range(self.first, self.encoder.config["num_hidden_layers"]):
            x = self.encoder.layer(i, x, mask, self.adapter)
        return F.normalize((x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)

    def loss(self, tools, examples):
        """InfoNCE of each relevant tool against the whole catalogue."""
        scores, total = self.vectors(examples) @ tools.T / TEMPERATURE, 0
        for e, row in zip(examples, scores):
            right = e["relevant"]
            if "twins" not in e:
                e["twins"] = ((tools @ tools[right].T).amax(1) > TWIN).nonzero()[:, 0]
            others = row.index_fill(0, e["twins"], -1e9).logsumexp(0)
            total = total + (torch.logaddexp(others, row[right]) - row[right]).mean()
        return total

    def draw(self, examples, n):
        return [examples[i] for i in self.random.choice(len(examples), min(n, len(examples)), replace=False)]

    def one_of(self, sets, size):
        """A set, each by the root of its size."""
        weights = np.sqrt([size(s) for s in sets])
        return sets[self.random.choice(len(sets), p=weights / weights.sum())]

    def train(self, sets, args):
        asked, made = [s for s in sets if s.queries], [s for s in sets if s.keywords]
        optimizer, began, losses = torch.optim.AdamW(self.parameters, lr=args.lr, weight_decay=0.01), time.time(), []
        for step in range(args.steps):
            for group in optimizer.param_groups:
                group["lr"] = args.lr * min(1, (step + 1) / 15) * (1 - step / args.steps)
            loss, n = 0, 0
            if asked:
                family = self.random.choice(sorted({s.family for s in asked}))
                s = self.one_of([s for s in asked if s.family == family], lambda s: len(s.queries))
                examples = self.draw(s.queries, args.batch)
                loss, n = loss + self.loss(s.tools, examples), n + len(examples)
            if made and args.keywords:
                s = self.one_of(made, lambda s: len(s.keywords))
                examples = self.draw(s.keywords, args.keywords)
                loss, n = loss + self.loss(s.tools, examples), n + len(examples)
            optimizer.zero_grad()
            (loss / n).backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, 1)
            optimizer.step()
            losses.append(float(loss) / n)
            if step % 20 == 19:
                print(f"step {step + 1}: loss {np.mean(losses[-20:]):.3f}, {time.time() - began:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="[FAMILY/]NAME=DIR")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="FILE.safetensors to write")
    parser.add_argument("--hold", default="", help="FAMILY or NAME, several with commas between, in no training pair")
    parser.add_argument("--data", type=pathlib.Path, help="DIR for what is prepared; what is in it is used again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--batch", type=int, default=24, help="queries of people in a step")
    parser.add_argument("--keywords", type=int, default=12, help="keyword queries in a step")
    parser.add_argument("--lr", type=float, default=7e-4)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--layers", type=int, default=3, help="how many of the top layers change")
    parser.add_argument("--strength", type=float, default=0.7, help="how much of the change is applied")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        train(args, args.data or pathlib.Path(temporary))


def train(args, data):
    data.mkdir(parents=True, exist_ok=True)
    given = [s.split("=", 1) for s in args.sets]
    sets, todo = [], []
    for label, directory in given:
        family, _, name = label.rpartition("/")
        sets.append((name, family or name))
        if not (data / f"{name}.keywords").exists():
            todo.append(f"{name}={pathlib.Path(directory).resolve()}")
    command = ["go", "run", "./adapter", "--seed", str(args.seed), "--out", str(data.resolve()), *todo]
    here = pathlib.Path(__file__).resolve().parents[1]
    model = pathlib.Path(subprocess.run(command, cwd=here, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    sets = [Set(name, family, data) for name, family in sets]
    out = args.hold.split(",")
    held = [s for s in sets if s.family in out or s.name in out]
    sets = [s for s in sets if s not in held]
    for s in sets:
        s.drop_twins_of(held)
    print({s.name: (len(s.queries), len(s.keywords)) for s in sets})
    trainer = Trainer(Encoder(model), args.layers, args.rank, args.seed)
    trainer.train(sets, args)
    tensors = {}
    for name, (down, up) in trainer.adapter.items():
        tensors[name + ".down"], tensors[name + ".up"] = down, up
    top = f"encoder.layer.{trainer.encoder.config['num_hidden_layers'] - 1}.{MAPS[0]}.weight"
    tensors["base"] = trainer.encoder.tensors[top][0]
    write_safetensors(args.out, tensors, {"strength": str(args.strength)})


if __name__ == "__main__":
    main()
