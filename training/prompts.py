"""The requests that SmolLM2 is asked for stories with: a few wordings, many slots."""

import random

NAMES = """Lily Max Tom Mia Ben Anna Sam Emma Jack Rose Lucy Leo Daisy Noah Ella Tim Sara Molly Ruby Finn Zoe Oscar
Lina Toby Nora Hugo Clara Felix Ivy Milo Ada Theo Amy Luke Eva Jon Maya Peter Alice Henry Grace Oliver Sophie Jake Lola
Kate Dan Penny Charlie Bella""".split()
WHO = """a little girl|a little boy|a small dog|a kitten|a rabbit|a mouse|a duck|a bear cub|a fox|a bird|an owl|a frog
a turtle|a squirrel|a pony|a young elephant|a little lion|a cow|a lamb|a hedgehog|a puppy|a goat|a young dragon|a robot
a brother and a sister|two best friends|a penguin|a fish|a butterfly|a monkey|a small star|a little boat
a farmer|a baker|a grandmother|a grandfather""".replace("\n", "|").split("|")
PLACE = """in the park|in the garden|in the forest|on a farm|at the beach|near a river|at home|at school|in a small village
in the snow|on a hill|by the lake|in a big city|in the kitchen|under a big tree|at the zoo|on a boat|in a cave
at the playground|in the meadow|in the attic|at the market|on a train|in the bedroom|by the sea""".replace("\n", "|").split("|")
THING = """a red ball|a kite|a shiny key|a lost hat|a big box|a warm blanket|a birthday cake|a toy car|a blue balloon
a book|a bell|a little bridge|an apple tree|a drum|a lamp|a pair of boots|a flower|a basket of berries|a swing|a bike
a puzzle|a snowman|a magic stone|a paper boat|a jar of honey|a crown|a map|a teddy bear|a ladder|a wagon|a feather
an umbrella|a bowl of soup|a rainbow|a music box|a seed|a pumpkin|a mirror|a picture|a sandcastle""".replace("\n", "|").split("|")
EVENT = """gets lost|makes a new friend|learns to share|helps somebody|is afraid of the dark|finds a surprise
loses something|breaks something and says sorry|wants to fly|cannot sleep|learns something new|plants something
builds something|has a bad day|visits a friend|plays a game|gets a present|tells the truth|is very hungry|hears a noise
waits for the rain to stop|takes care of a baby bird|tries again and again|goes on a trip|cleans up
bakes something|is brave|feels shy|wants to win a race|shares lunch""".replace("\n", "|").split("|")
FEELING = "happy sad proud afraid curious angry shy brave lonely excited sleepy surprised worried thankful".split()
ADJECTIVE = "sunny rainy windy cold warm quiet snowy bright busy lovely".split()

WORDINGS = [
    "Write a short story about {who} named {name} who {event} {place}.",
    "Write a short story about {who} and {thing} {place}.",
    "Write a short story about {name}, who {event}.",
    "Write a short story about {name} and {other} {place} with {thing}.",
    "Write a short story about {who} who feels {feeling} and {event}.",
    "Write a short story about {who} named {name} and {thing}.",
]
ENDINGS = [" Write one paragraph of about 100 words.", " It is for small children. Write one paragraph of about 100 words."]
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
OPENINGS = [
    "Once upon a time", "Once upon a time, there was {who} named {name}.", "Once upon a time, {who}",
    "One day, {name}", "One day, {who}", "One {adjective} day, {name}", "One {adjective} morning, {who}",
    "It was a {adjective} day, and {name}", "There was once {who}", "There was {who} named {name}",
    "{name} was {feeling} because", "{name} and {other} were", "Every day, {name}", "In a small house, there lived {who}",
    "{name} had {thing}.", "{name} was {who} who",
]


def request(rng: random.Random) -> tuple[str, str]:
    """A request and the words that its story must begin with: none for half of them."""
    name, other = rng.sample(NAMES, 2)
    slots = dict(name=name, other=other, who=rng.choice(WHO), place=rng.choice(PLACE), thing=rng.choice(THING),
                 event=rng.choice(EVENT), feeling=rng.choice(FEELING), adjective=rng.choice(ADJECTIVE))
    opening = rng.choice(OPENINGS).format(**slots) if rng.random() < 0.5 else ""
    return rng.choice(WORDINGS).format(**slots) + rng.choice(ENDINGS), opening


def chat(rng: random.Random) -> tuple[str, str]:
    """The same in SmolLM2's chat template, with the system message it was trained with."""
    text, opening = request(rng)
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
            "<|im_start|>assistant\n"), opening
