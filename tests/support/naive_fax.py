"""A plain reader of CCITT facsimile: every code, run and end, one bit after another."""

from anychunk.codecs._fax_lines import BLACK, LONGER, WHITE

RUNS = [*range(64), *range(64, 1729, 64), *range(1792, 2561, 64)]
CODES = [
    dict(zip([*colour.split(), *LONGER.split()], RUNS, strict=True)) for colour in (WHITE, BLACK)
]
MODES = {
    "0001": "pass",
    "001": "horizontal",
    "1": 0,
    "011": 1,
    "000011": 2,
    "0000011": 3,
    "010": -1,
    "000010": -2,
    "0000010": -3,
}
EOL = "000000000001"


class Damaged(Exception):
    pass


class Bits:
    def __init__(self, data):
        self.bits = "".join(f"{byte:08b}" for byte in data)
        self.at = 0
        self.is_odd = False  # codes that no writer uses, but readers accept

    def code(self, table):
        for end in range(self.at + 1, self.at + 14):
            found = table.get(self.bits[self.at : end])
            if found is not None:
                self.at = end
                return found
        raise Damaged("no code")

    def run(self, colour):
        total = 0
        while True:
            length = self.code(CODES[colour])
            total += length
            if length < 64:
                return total

    def row_of_runs(self, width):
        row, colour = [], 0
        while len(row) < width:
            row += [colour] * self.run(colour)
            colour = 1 - colour
        if len(row) != width:
            raise Damaged("width")
        return row

    def row_from(self, above, width):
        """T.6 2.2: a0, b1 and b2 are positions, -1 is the imaginary white element in front."""
        row, a0, colour = [], -1, 0
        while len(row) < width:
            mode = self.code(MODES)
            if mode == "horizontal":
                row += [colour] * self.run(colour)
                row += [1 - colour] * self.run(1 - colour)
                a0 = len(row)
                continue
            changes = [x for x in range(width) if above[x] != (above[x - 1] if x else 0)]
            after = [x for x in changes if x > a0 and above[x] != colour]
            b1 = after[0] if after else width
            if mode == "pass":
                following = [x for x in changes if x > b1]
                self.is_odd |= not following
                a0 = following[0] if following else width
                row += [colour] * (a0 - len(row))
                continue
            a1 = b1 + mode
            if a1 < len(row):
                raise Damaged("backwards")
            self.is_odd |= a1 == a0
            row += [colour] * (a1 - len(row))
            a0, colour = a1, 1 - colour
        if len(row) != width:
            raise Damaged("width")
        return row


def group4(data, height, width):
    bits, rows, above = Bits(data), [], [0] * width
    for _ in range(height):
        above = bits.row_from(above, width)
        rows.append(above)
    rest = bits.bits[bits.at :]
    # the end-of-block code, of which readers take the first half, or fill
    if rest[:11].strip("0"):
        raise Damaged("end")
    return rows, bits.is_odd


def group3(data, height, width, is_two_dimensional):
    bits, rows, above = Bits(data), [], [0] * width
    while EOL in bits.bits[bits.at :]:
        fill = bits.bits.index(EOL, bits.at)
        if "1" in bits.bits[bits.at : fill]:
            raise Damaged("codes between rows")
        bits.at = fill + len(EOL)
        if bits.bits[bits.at :].replace("0", "") == "":
            break
        is_runs = True
        if is_two_dimensional:
            is_runs = bits.bits[bits.at] == "1"
            bits.at += 1
        above = bits.row_of_runs(width) if is_runs else bits.row_from(above, width)
        rows.append(above)
    if len(rows) != height or "1" in bits.bits[bits.at :]:
        raise Damaged("end")
    return rows, bits.is_odd


def runs_in_bytes(data, height, width):
    bits, rows = Bits(data), []
    for _ in range(height):
        rows.append(bits.row_of_runs(width))
        bits.at += -bits.at % 8
    if "1" in bits.bits[bits.at :][:12]:
        raise Damaged("end")
    return rows, False
