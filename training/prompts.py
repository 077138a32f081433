"""The requests that SmolLM2 is asked for stories with: a few wordings, many slots."""

import random

GIRLS = """Lily Mia Anna Emma Rose Lucy Daisy Ella Sara Molly Ruby Zoe Lina Nora Clara Ivy Ada Amy Eva Maya Alice Grace
Sophie Lola Kate Penny Bella Hannah Nina Julia""".split()
BOYS = """Max Tom Ben Sam Jack Leo Noah Tim Finn Oscar Toby Hugo Felix Milo Theo Luke Jon Peter Henry Oliver Jake Dan
Charlie Adam Paul Simon Eli Owen Fred Will""".split()
NAMES = GIRLS + BOYS
PEOPLE = dict.fromkeys("a little girl|a grandmother|a young girl|a kind queen".split("|"), GIRLS) | dict.fromkeys(
    "a little boy|a grandfather|a young boy|an old king".split("|"), BOYS)
WHO = list(PEOPLE) + """a small dog|a kitten|a rabbit|a mouse|a duck|a bear cub|a fox|a bird|an owl|a frog
a turtle|a squirrel|a pony|a young elephant|a little lion|a cow|a lamb|a hedgehog|a puppy|a goat|a young dragon|a robot
a penguin|a fish|a butterfly|a monkey|a small star|a little boat|a farmer|a baker|a pig|a bee|a snail|a horse
a little train|a tiny fairy|a cat|a sheep|a hen|a giraffe""".replace("\n", "|").split("|")
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
    "Once upon a time", "Once upon a time, there was {who} named {name}.", "Once upon a time, {who}", "Once upon a time, in",
    "One day, {name}", "One day, {who}", "One {adjective} day, {name}", "One {adjective} morning, {who}", "One night,",
    "One {adjective} morning, {name} woke up and", "One {adjective} day, {name} and {other} were {place}.",
    "It was a {adjective} day, and {name}", "There was once {who}", "There was {who} named {name}", "There was once {who} who was",
    "{name} was {feeling} because", "{name} and {other} were", "{name} and {other} found {thing} {place}.", "Every day, {name}",
    "In a small house, there lived {who}", "In a big forest, there lived", "{name} had {thing}.", "{name} was {who} who",
    "{name} wanted", "{name} was {feeling}.", "Long ago,", "There was {thing} {place}.", "{name} loved", "Every night, {name}",
]
OPENED = 0.8  # Left to begin as it likes, SmolLM2 describes the light of the evening.


def request(rng: random.Random) -> tuple[str, str]:
    """A request, and the words that its story must begin with or nothing."""
    who = rng.choice(WHO)
    name = rng.choice(PEOPLE.get(who, NAMES))
    slots = dict(who=who, name=name, other=rng.choice([n for n in NAMES if n != name]), place=rng.choice(PLACE),
                 thing=rng.choice(THING), event=rng.choice(EVENT), feeling=rng.choice(FEELING),
                 adjective=rng.choice(ADJECTIVE))
    opening = rng.choice(OPENINGS).format(**slots) if rng.random() < OPENED else ""
    return rng.choice(WORDINGS).format(**slots) + rng.choice(ENDINGS), opening


def chat(rng: random.Random) -> tuple[str, str]:
    """The same in SmolLM2's chat template, with the system message it was trained with."""
    text, opening = request(rng)
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
            "<|im_start|>assistant\n"), opening
