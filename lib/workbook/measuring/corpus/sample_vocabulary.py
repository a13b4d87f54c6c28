"""Words and sentences of the synthetic tweets: everyday life in a few made-up towns, and what goes wrong there.

Slots in braces are filled by `sample_writer`: `{event}` and `{state}` are the keyword of the tweet, the others name a
list below.
"""

from __future__ import annotations


def words(text: str) -> tuple[str, ...]:
    """The entries of a list written with bars between them; a line break after a bar is layout only."""
    return tuple(text.replace("\n", "").split("|"))


EVENTS = words(
    """accident|aftershock|airstrike|ambulance|arson|avalanche|bacteria|blackout|blast|blaze|blizzard|boat fire|
brush fire|bus crash|car fire|cave-in|chaos|chemical spill|cliff fall|cloudburst|cold snap|collapse|collision|
concussion|crash landing|crater|cyclone|dam failure|danger|debris|deluge|derailment|detonation|disaster|
downpour|drought|dust storm|earthquake|emergency|engine fire|epidemic|eruption|evacuation|explosion|famine|
fatality|fire alarm|fireball|flash flood|flood|flood warning|forest fire|frostbite|gale|gas leak|grass fire|
gridlock|hail|hailstorm|hazard|heat wave|high water|hostage drama|hurricane|ice storm|inferno|injury|landslide|
lava|lightning strike|lockdown|looting|mass panic|mayhem|meltdown|mudslide|nightmare|oil spill|outage|outbreak|
pandemonium|panic|pileup|plague|power cut|quake|quarantine|radiation|rescue|riot|rockfall|roof fire|rubble|
sandstorm|search party|shipwreck|shockwave|sinkhole|siren|smoke|snowdrift|spill|stampede|storm|storm surge|
thunder|thunderstorm|tidal wave|tornado|tragedy|train crash|trauma|tremor|tsunami|turbulence|twister|typhoon|
upheaval|violent wind|volcano|warehouse fire|water main break|waterspout|whirlwind|whiteout|wildfire|windstorm|
wreck|wreckage"""
)

STATES = words(
    """ablaze|abandoned|alight|attacked|battered|bleeding|blocked|blown over|bombed|broken|buckled|buried|burned|
burning|burnt out|capsized|charred|choking|collapsing|cracked|crashing|crumbling|crushed|cut off|damaged|
deluged|demolished|derailed|desolate|destroyed|detonated|devastated|disabled|displaced|drenched|drowning|
electrocuted|engulfed|erupting|evacuated|exploding|falling apart|flattened|flooded|freezing|frozen|gutted|
hijacked|hit hard|in danger|in flames|in ruins|injured|inundated|isolated|knocked out|leaking|levelled|missing|
obliterated|on fire|overturned|overwhelmed|paralysed|poisoned|razed|rescued|ruined|scorched|screaming|shaken|
shattered|sinking|smashed|smouldering|snowed in|soaked|stranded|submerged|suffocating|swamped|swept away|
torn apart|toxic|trapped|under siege|under water|unstable|uprooted|washed out|wind-torn|wiped out"""
)

PLACES = words(
    """Alderwyck|Bramfordquay|Cwmrhowan|Dunmore|East Harlow|Fenbridge|Ghyllshaw|Holt Valley|Isla Verde|Jarrow Falls|
Kestrel Bay|Llanfrydd|Marsh End|North Pelham|Oxtwistle|Port Sarow|Qualmsbury|Redmere|San Telmo|Tzarkowiec|
Upper Wye|Vallejo Norte|Westhryng|Yarrow Creek|Zwolhuizen|Ashby Co.|Skjelvik|Mbawe Hills|Xochitla|Thrupp-on-Wye|
Lake Corran|Mt. Tessel"""
)

SITES = words(
    """the bridge|the school|the station|the market hall|the mill|the paper factory|the car park|the ferry terminal|
the hospital|the tunnel|the library|the substation|the campsite|the airport road|the bakery|the primary school|
the ring road|the power line|the town hall|the north pier"""
)

CREWS = words(
    """fire crews|rescue teams|police|paramedics|the coast guard|engineers|volunteers|the mountain rescue|
two helicopters|the sheriff|emergency services|divers|the county council|forest rangers|the Red Cross"""
)

THINGS = words(
    """inbox|Monday|diet|kitchen|hair|exam week|bank account|love life|team|phone|group project|playlist|birthday cake|
laptop|sleep schedule|garden|new haircut|fantasy league|first date|cooking|job interview|bedroom|parking|wifi|
wedding speech|gym plan"""
)

PERSONS = words(
    """my brother|my boss|our cat|the new guy|my flatmate|grandma|our keeper|my sister|the drummer|the neighbour|
my kid|coach|the referee|my ex|this barista"""
)

MOODS = words(
    "honestly|no joke|seriously|I swear|somehow|as usual|for real|once again|not gonna lie|at least|I think|obviously"
)

NAMES = words(
    """marta|deniz|olu|jonas|priya|sam|katya|lee|noor|hugo|ines|tomek|yuki|ravi|bea|finn|zoe|amir|clara|otto|nina|
pavel|rosa|kofi|mila|theo"""
)

HANDLE_TAILS = words("_|reads|live|92|87|xo|2|_tv|news|hq|music|77|_official|tweets|01|games|writes|wx")

TAGS = words(
    """news|WxAlert|traffic|breaking|StaySafe|DunmoreFC|local|photo|nowplaying|MondayMood|football|EpicFail|gamedev|
KestrelBay|Route14|RoadClosedA9|cooking|travel|selfie|FenbridgeNews|jobs|TarnsideUtd|health|SundayBlog|FTW|
StormWatch|Pray4Dunmore|safety|sci|volunteers|CatsOfTwitter|NWwx|EDMdubstep|AMreading|QandA|RTplz|Yr9Maths|TBT"""
)

INCIDENT_EVENT = (
    "{Event} reported near {place}, {crew} on the way",
    "Breaking: {event} in {place}, {number} people affected",
    "{place}: {event} confirmed by {crew}",
    "{Crew} respond to {event} at {site} in {place}",
    "{number} hurt after {event} close to {site}",
    "Update on the {event} in {place}: {site} stays closed until {hour}",
    "{Event} near {place} leaves {number} homes without power",
    "Live map of the {event} in {place}",
    "Witness describes {event} behind {site} in {place}",
    "Year after the {event}, {place} is still rebuilding",
    "{Event} warning for {place} until {hour}",
)
INCIDENT_STATE = (
    "{Site} in {place} is {state} and {crew} ask people to keep away",
    "{number} residents moved as {site} in {place} is {state}",
    "{Crew}: {site} {state} since {hour}, nobody hurt",
    "Parts of {place} {state} tonight",
    "{place} residents find {site} {state} this morning",
    "Photo: {site} {state} near {place}",
    "{Site} still {state} after {number} hours, says the mayor of {place}",
)
FIGURATIVE_EVENT = (
    "my {thing} is one long {event}",
    "{person} walked in and it was {event} all over again",
    "{mood} my {thing} deserves its own {event}",
    "That new album is pure {event} and I love it",
    "{Event} is the best track of the year",
    "If {person} sings again there will be {event}",
    "Reading '{Event}' by the fire, great novel",
    "total {event} in my {thing} today",
    "level {number} of {Event}, this game is so good",
    "I bring the {event} to every party",
    "{person} and I survived the {event} of moving day",
)
FIGURATIVE_STATE = (
    "my {thing} is {state} and I am fine with it",
    "{person} left me emotionally {state}",
    "I am {state} after that season finale",
    "{mood} I feel {state} by my {thing}",
    "{person} is {state} by how good this pizza is",
    "when your {thing} is {state} but you smile anyway",
    "our defence was {state} in the first half",
    "This remix has me {state}",
)
EITHER_EVENT = (
    "not another {event}",
    "{Event} again",
    "so much {event} in one week",
    "did you hear about the {event}?",
    "the {event} is all anyone talks about",
    "such {event}",
    "I can still see the {event} when I close my eyes",
)
EITHER_STATE = (
    "everything is {state} here",
    "still {state}",
    "completely {state} today",
    "woke up and it was all {state}",
    "how can it be {state} already?",
    "{state} again, send help",
)
SHORT = (
    "OMG {event}!!1",
    "tbh: {event}, ugh.",
    "{Event} @ {hour}?!",
    "{event}, smh",
    "ugh {event} today",
    "@ {hour}: {event}",
)
INCIDENT_MORE = (
    "{crew} expect to work through the night",
    "shelter open at {site}",
    "avoid the A{number} at {place} if u can",
    "roads closed around {site} until {hour}",
    "{number} people taken to hospital, {number} missing",
    "no injuries so far according to {crew}",
    "trains {place}-{place} cancelled",
    "cause still under investigation",
    "drinking water is handed out at {site}",
    "call the hotline if you live near {place}",
    "wind {number} km/h, gusts {number}kts",
    "the mayor thanked {crew} for their work",
    "press conf at {hour} w/ Sgt. Ruiz",
    "{number} families spend the night in {site}",
    "M{digit}.{digit}, depth {number}.{digit}km, felt in {place}",
)
FIGURATIVE_MORE = (
    "and {person} just laughed",
    "smh I need coffee n a hug",
    "bestest nite of the summer tho",
    "{mood} I wld do it again lmaooo",
    "tickets for {place} are on sale now",
    "new vid is up: Ep.{number} (HQ), lmk what u think",
    "who wants to come over and watch the match",
    "only {number} days until the holidays",
    "{person} owes me {number} euros",
    "ordering noodles because my {thing} gave up",
    "pls vote 4 our band DJ Quokka",
    "this is why I never post before {hour}",
    "my {thing} thanks you",
    "sooo proud of {person} rn",
    "{mood} it made my day xoxo",
)
EITHER_MORE = (
    "more on this later",
    "I was in {place} at {hour}",
    "nobody tells us anything ffs",
    "{mood} didn't expect that tbh",
    "thinking of everyone in {place}",
    "look at the pics (via K-Wire)",
    "it was all over by {hour}",
    "{person} saw it too",
    "never seen anythin like it y'all",
    "shoulda stayed home ugh",
)
# One entry a language, each sentence with characters outside ASCII: (about incidents, about everyday life).
FOREIGN = (
    (
        (
            "Inundación en {place}, {number} familias evacuadas esta mañana",
            "Cortada la carretera de {place} por un incendio, según la policía",
        ),
        (
            "Mañana empiezo la dieta, lo juro",
            "Qué película tan buena, lloré como un niño",
            "Mi corazón está en llamas por esta canción",
        ),
    ),
    (
        (
            "Incendie près de {place}, {number} personnes évacuées",
            "Éboulement à {place}, la route est fermée jusqu'à demain",
        ),
        ("Ma journée a été un désastre mais le café était très bon", "Cette équipe m'a brisé le cœur, même à la télé"),
    ),
    (
        (
            "Überschwemmung in {place}, Straße für {number} Stunden gesperrt",
            "Großbrand bei {place}, Fenster bitte geschlossen halten",
        ),
        (
            "Mein Schreibtisch ist ein Trümmerfeld, schönes Wochenende",
            "Für die Prüfung müsste ich eigentlich üben, später vielleicht",
        ),
    ),
    (
        (
            "Deslizamento em {place} deixa {number} famílias sem água",
            "Incêndio em {place} já está sob controle, diz o município",
        ),
        ("Não aguento mais esta segunda-feira, preciso de férias", "Essa música é uma explosão de alegria, ouçam já"),
    ),
    (
        ("{place} yakınında deprem, {number} kişi yaralı", "Yangın söndürüldü, yol saat {hour} gibi açılacak"),
        ("Bugün çok yorgunum ama kahve güzeldi", "Bu şarkı beni mahvetti, gerçekten çok iyi"),
    ),
    (
        ("Наводнение в {place}, эвакуированы {number} человек", "Пожар на складе, дорога закрыта до {hour}"),
        ("Моя кухня после ужина как поле боя", "Эта песня просто взрыв, слушаю весь день"),
    ),
    (
        ("حريق قرب {place} وإجلاء {number} شخصا", "زلزال خفيف ولا إصابات حتى الآن"),
        ("يومي كان فوضى لكن القهوة ممتازة", "هذه الأغنية رائعة جدا"),
    ),
    (
        ("{place}で地震、{number}人が避難しています", "大雨のため道路は{hour}まで通行止めです"),
        ("今日の会議は嵐のようだった、でもラーメンが美味しい", "新しい曲が最高すぎて泣いた"),
    ),
    (
        ("{place} में बाढ़, {number} लोग सुरक्षित निकाले गए", "भूकंप के झटके, कोई घायल नहीं"),
        ("आज का दिन तूफान जैसा था पर चाय अच्छी थी", "यह गाना बहुत बढ़िया है"),
    ),
    (
        ("Powódź w {place}, ewakuowano {number} osób", "Pożar hali pod {place}, droga zamknięta do {hour}"),
        ("Mój pokój wygląda jak po wybuchu, a goście już są", "Ten mecz to była katastrofa, ale było śmiesznie"),
    ),
)
SYMBOLS = (
    "\u2026",
    "\u2019s life",
    "\u2014 wow",
    "\u00a325",
    "caf\u00e9",
    "\U0001f62d\U0001f62d",
    "\U0001f525",
    "\u2764\ufe0f",
    "\U0001f64f",
    "\u201cok\u201d",
    "24\u00b0C",
    "\u00bd way",
)
ENTITIES = ("&amp; more", "&gt;&gt;", "&lt;3", "Q&amp;A", "&amp; you?", "R&amp;B", "&amp; counting", "-&gt; read")
# Closing words: the one of the right length brings a tweet to exactly the length it was meant to have.
CLOSERS = words(
    "!|?|.|!!|??|:)|...|!!!| :)| lol| omg| now| wow| haha| right| today| again| really| sadly!| tonight| anyway.|"
    " everyone| people?!| this week|, right now| right now!| on a Sunday| good morning|, what a day!"
)
END_OF_READINGS = " all back to normal"
KEYWORDS = EVENTS + STATES
