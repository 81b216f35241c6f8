"""The words that candidate lists are made of: 256 nouns in no order, none of which begins with another."""

_TEXT = """
actor donkey hawk shell lobster brush ocean snail spider lion magnet cradle chain jewel engine earth puppet paper
pumpkin river cliff garden camel robin rose chimney candle gate lily flag cape button owl cellar timber coffee
knight tower harp bucket bundle cedar bacon guitar museum bottle cabin saddle oak cloud stone butter ankle oyster
mirror bonnet bowl pond daisy meadow jacket beach seal gravel llama kettle market panda field coach temple sunset
blade lake puzzle otter drum sugar dice amber fountain forest attic canal falcon ember mountain garlic elbow storm
pearl mouse dolphin mask clover lantern sand angel fork door rabbit honey award apple fiddle cargo ghost beaver
feather leopard boat poppy globe brass eagle album maple scarf flute bugle pocket cotton onion badge crown buffalo
thunder spoon orchid galaxy hill tiger skull chalk piano cobra heron farm moon arrow broom branch bell basin glacier
pepper apron sponge night cactus marble napkin kitten monkey fabric lamp quartz pigeon copper lagoon mango rocket
pirate hood orange pebble boulder coral pine star blanket gold table curtain beard train frog horse brick cherry
castle jungle cage barn ruby deer raven chest diamond grape plum acorn lizard melon nest fence oasis bench alley
island banjo thistle hazel fox stable ivory canyon locket letter cup fossil dragon ribbon jaguar ginger desk moss
quill basket olive birch crystal bridge lemon planet needle hinge circus pillow linen berry paddle shield comet
bread hammer carpet shadow salmon ladder dress glass crane potato pencil silver ferry goat harbor swan clock atlas
flame sailor palace parrot
"""
WORDS = tuple(_TEXT.split())
"""A world of W words takes the first W."""
