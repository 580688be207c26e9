"""A small transformer that predicts the next character of any text file.

    paceline launch -n 4 -- python3 examples/chars.py --text book.txt --method diloco:u=20
    python3 examples/chars.py --text book.txt --method async --simulate --workers 8
"""

import os
from typing import Tuple

import torch
from torch import nn

import common


class Chars(nn.Module):
    mask: torch.Tensor

    def __init__(self, n_chars: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(n_chars, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, n_chars)
        mask = torch.full((length, length), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x) + self.place[: x.shape[1]]
        for block in self.blocks:
            h = block(h, src_mask=self.mask[: x.shape[1], : x.shape[1]])
        out: torch.Tensor = self.out(self.norm(h))
        return out.transpose(1, 2)  # [batch, characters, length]


def load(path: str, length: int) -> Tuple[int, common.Pair, common.Pair]:
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    chars = sorted(set(text))
    code = {ch: i for i, ch in enumerate(chars)}
    codes = torch.tensor([code[ch] for ch in text])
    if len(codes) < 4 * length:
        raise SystemExit(f"{path} has {len(codes)} characters; at least {4 * length} are needed")
    rows = codes.unfold(0, length + 1, max(1, length // 2))
    n_test = max(1, len(rows) // 10)
    x, y = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    return len(chars), (x[:-n_test], y[:-n_test]), (x[-n_test:], y[-n_test:])


def main() -> None:
    p = common.parser(__doc__, batch=16, lr=1e-3)
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    p.add_argument("--text", default=os.path.join(here, "README.md"), help="file to learn from")
    p.add_argument("--length", type=int, default=64, help="characters of context")
    p.add_argument("--width", type=int, default=64, help="numbers per character")
    p.add_argument("--layers", type=int, default=2, help="transformer layers")
    args = p.parse_args()
    torch.manual_seed(0)
    n_chars, train, test = load(args.text, args.length)
    model = Chars(n_chars, args.length, args.width, args.layers)
    optimizers = [
        torch.optim.AdamW(model.parameters(), lr=args.lr),
        torch.optim.SGD(model.parameters(), lr=10 * args.lr, momentum=0.9),
        torch.optim.SGD(model.parameters(), lr=100 * args.lr),
    ]
    common.run(args, model, nn.functional.cross_entropy, train, test, optimizers)


if __name__ == "__main__":
    main()
